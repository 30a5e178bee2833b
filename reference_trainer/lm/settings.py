"""All settings of a training run in one block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig, perf_config
from reference_trainer.program import flag

EVALUATE_EVERY: Final = 20
"""Steps: held-out text of 30,000 tokens takes as long as some three steps of 3,000, beside the measured time."""
CHECKPOINT_EVERY: Final = 100
"""Steps: what kill -9 can lose."""
DTYPES: Final = {
    "fp32": "float32",
    "tf32": "float32 with TF32 products",
    "bf16": "float32 with bf16 products",
}
"""Option --dtype -> the fact by which runs are compared."""
PLAIN: Final = {"torch-token": "token by token", "torch-batched": "batched"}
"""Variants that compute the chunk in plain PyTorch, without this trainer's device -> how they do it."""
UNUSED: Final[Mapping[str, str]] = {
    "max_load": "the language model runs on the one device that it is given, however busy that is",
    "max_load_wait": "the language model runs on the one device that it is given, however busy that is",
    "num_devices": "the language model runs on one device",
    "cudnn_benchmark": "nothing of the language model is computed by cuDNN",
    "cudnn_deterministic": "nothing of the language model is computed by cuDNN",
    "precision": "the language model has --dtype instead",
}
"""Setting of `PerformanceConfig` -> why this trainer has no use for it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run."""

    variant: str = "as-found"
    """A named set of fixes: as-found or fixed; or one of PLAIN."""
    fixes: tuple[str, ...] | None = None
    """Fixes by name instead of a variant's."""
    preset: str = "tiny"
    device: str = "auto"
    dtype: str = "fp32"
    """fp32, or tf32 or bf16: the inputs of matrix products of whole chunks are rounded to that, sums are in fp32."""
    tokens_per_chunk: int = 3000
    """Number of predictions of a chunk; a group of samples is cut so that it holds about as many tokens."""
    samples_per_chunk: int = 8
    corpus: Path | None = None
    """None: the documentation that ships inside CPython."""
    tokenizer: Path | None = None
    """File of a SentencePiece model; its vocabulary replaces that of the preset. None: one is trained on the corpus."""
    seed: int = 0
    max_chunks: int | None = None
    """Measured chunks; a model that learns is done after so many, those before a checkpoint among them. None: as many
    as `seconds` hold."""
    seconds: float = 3.0
    """Measured time, when `max_chunks` is None."""
    warmup_seconds: float = 0.3
    """Chunks before the measured ones, at least one: first calls load compiled code and fill the pools. A recording has
    three at least, whose results it states."""
    empty_kernels: bool = False
    """Launch empty kernels: the least that the pattern of calls can cost. Losses mean nothing then."""
    shards: Path | None = None
    """Folder of pre-tokenized shards, for the fix pretokenize; None: made before training, in the user's cache."""
    metrics: Path | None = None
    """File that gets a row for every reading of the metrics (every step, every 16 with the fix quiet-logging),
    metrics_history.json say."""
    verbose: bool = False
    performance: PerformanceConfig = field(default_factory=lambda: perf_config.current)
    """How much of the machine it may use; `reference_trainer.lm.job` refuses settings that have no effect here."""

    # The following settings are for the fix `learn`. None: as in `reference_trainer.lm.optimizer`.
    lr: float | None = None
    """Highest learning rate."""
    warmup_steps: int | None = None
    """Steps over which it rises to that."""
    total_steps: int | None = None
    """Step from which on it stays at its least."""
    weight_decay: float | None = None
    clip_norm: float | None = None
    """Gradients of a larger norm are scaled down to it."""
    evaluate_every: int | None = None
    """Steps from one evaluation on held-out text to the next; 0: only at the end. None: EVALUATE_EVERY."""
    checkpoint: Path | None = None
    """Folder of the checkpoint; None: none is written."""
    checkpoint_every: int | None = None
    """Fewest steps between two. None: CHECKPOINT_EVERY."""
    resume: bool = False
    """Go on from the checkpoint."""

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and (value < least or value > most):
                bound = f"at least {least}" if value < least else f"at most {most}"
                raise TrainerError(f"{flag(name)} {value}: must be {bound}")
        for name in ("seconds", "lr", "clip_norm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise TrainerError(f"{flag(name)} {value}: must be a number{_UNIT.get(name, '')} above 0")
        for name in ("warmup_seconds", "weight_decay"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < inf:
                raise TrainerError(f"{flag(name)} {value}: must be a number{_UNIT.get(name, '')}, 0 or more")
        if self.dtype not in DTYPES:
            raise TrainerError(f"--dtype {self.dtype}: choose one of {', '.join(DTYPES)}")
        if self.dtype != "fp32" and self.performance.tf32:
            raise TrainerError(f"--tf32 means nothing beside --dtype {self.dtype}: leave one out")
        for name in ("resume", "checkpoint_every"):
            if getattr(self, name) and self.checkpoint is None:
                raise TrainerError(f"{flag(name)} means nothing without a folder of checkpoints: add --checkpoint DIR")

    @property
    def products(self) -> str:
        """fp32, tf32 or bf16: what the inputs of matrix products are rounded to, by --dtype or by --tf32."""
        return "tf32" if self.performance.tf32 else self.dtype

    @property
    def stated_dtype(self) -> str:
        """The dtype as a fact: runs that differ in it are not comparable."""
        return DTYPES[self.products]

    def learning_options(self) -> list[str]:
        """The given options that have an effect only if the model learns, as on the command line."""
        options = ((name, getattr(self, name)) for name in _LEARNING)
        return [flag(name) for name, value in options if value is not None and value is not False]


_MOST_STEPS: Final = 1 << 24
"""The device counts steps in fp32, which has no odd number above this."""
_RANGES: Final = {
    "tokens_per_chunk": (1, inf),
    "samples_per_chunk": (1, inf),
    "max_chunks": (1, inf),
    "seed": (0, inf),
    "lr": (-inf, 10),
    "weight_decay": (-inf, 10),
    "warmup_steps": (0, _MOST_STEPS),
    "total_steps": (1, _MOST_STEPS),
    "evaluate_every": (0, inf),
    "checkpoint_every": (1, inf),
}
_UNIT: Final = {"seconds": " of seconds", "warmup_seconds": " of seconds"}
_LEARNING: Final = (
    "lr",
    "warmup_steps",
    "total_steps",
    "weight_decay",
    "clip_norm",
    "evaluate_every",
    "checkpoint",
    "checkpoint_every",
    "resume",
)
