"""Checks all settings and loads text and tokenizer before training begins."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from reference_trainer.devices import kind_of
from reference_trainer.devices.protocol import Device
from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText, Chunks, Source
from reference_trainer.lm.corpus import Corpus, load_corpus
from reference_trainer.lm.model import ModelConfig, preset
from reference_trainer.lm.plan import Plan, plan, variant_fixes
from reference_trainer.lm.settings import UNUSED, Settings
from reference_trainer.lm.tokenizer import open_tokenizer
from reference_trainer.performance import PerformanceConfig, refuse

if TYPE_CHECKING:
    from reference_trainer.lm.optimizer import Optimizer

_OPTIONS: Final = {
    "rate": "lr",
    "warmup": "warmup_steps",
    "total": "total_steps",
    "weight_decay": "weight_decay",
    "largest_norm": "clip_norm",
}
"""Parameter of the optimizer -> name in Settings."""
_CUDA_ONLY: Final = dict.fromkeys(("max_memory", "empty_cache_frequency", "tf32"), "it is for device cuda")


@dataclass(frozen=True, slots=True)
class Job:
    """A run's settings with everything that they refer to, loaded."""

    settings: Settings
    fixes: tuple[str, ...]
    """Names of the fixes."""
    plan: Plan
    config: ModelConfig
    text: ChunkedText

    @property
    def label(self) -> str:
        """The variant's name, or those of the fixes."""
        return self.settings.variant if self.settings.fixes is None else "+".join(self.fixes) or "as-found"


def prepare(settings: Settings) -> Job:
    """Load text and tokenizer. Bad input is a TrainerError."""
    kind, _ = kind_of(settings.device)
    check_performance(settings.performance, kind)
    fixes = variant_fixes(settings.variant, kind) if settings.fixes is None else settings.fixes
    chosen = plan(fixes, kind)
    option = "--tf32" if settings.performance.tf32 else f"--dtype {settings.dtype}"
    if settings.products != "fp32" and not (chosen.recurrence == chosen.decode == "chunk"):
        raise TrainerError(
            f"{option} is for products of whole chunks, those of single tokens are in fp32: "
            f"add the fixes batch-recurrence and batch-decode, or leave {option.partition(' ')[0]} out"
        )
    if settings.empty_kernels and chosen.learn:
        raise TrainerError("--empty-kernels: nothing is learned with them, leave out fix 'learn'")
    if not chosen.learn and (options := settings.learning_options()):
        raise TrainerError(
            f"{options[0]} means nothing without fix 'learn': add it to --fixes, or leave {options[0]} out"
        )
    if settings.shards is not None and chosen.tokenize != "shards":
        raise TrainerError("--shards means nothing without fix 'pretokenize': add it to --fixes, or leave --shards out")
    config = preset(settings.preset)
    text = chunked_text(settings, load_corpus(settings.corpus), config)
    return Job(settings, fixes, chosen, replace(config, vocabulary=text.tokenizer.vocab_size), text)


def chunked_text(settings: Settings, corpus: Corpus, config: ModelConfig) -> ChunkedText:
    """The corpus with its tokenizer, and the sizes of chunks and samples from the settings."""
    tokenizer = open_tokenizer(settings.tokenizer, corpus, config.vocabulary)
    return ChunkedText(corpus, tokenizer, settings.tokens_per_chunk, settings.samples_per_chunk)


def check_performance(config: PerformanceConfig, kind: str) -> None:
    """Refuse settings that this trainer ignores on a device of that kind.

    :raises TrainerError: such a setting.
    """
    if config.num_devices == 1:
        config = replace(config, num_devices=None)
    refuse(config, UNUSED if kind == "cuda" else {**UNUSED, **_CUDA_ONLY})


def optimizer(settings: Settings) -> Optimizer:
    """AdamW with the options of the settings, and with its defaults where they have none."""
    from reference_trainer.lm.optimizer import Optimizer

    options = {name: getattr(settings, option) for name, option in _OPTIONS.items()}
    return Optimizer(**{name: value for name, value in options.items() if value is not None})


def facts(job: Job, device: Device) -> dict[str, Any]:
    """Facts about the run for the profiler, which decide what it may be compared with."""
    settings = job.settings
    return {
        "trainer": "reference_trainer.lm",
        "variant": job.label,
        "fixes": list(job.fixes),
        "device": device.kind,
        "device_label": device.label,
        "corpus": job.text.corpus.name,
        "corpus_sha256": job.text.corpus.sha256,
        "tokenizer": job.text.tokenizer.fingerprint,
        "tokenizer_file": job.text.tokenizer.file,
        "preset": settings.preset,
        "model": asdict(job.config),
        "tokens_per_chunk": settings.tokens_per_chunk,
        "samples_per_chunk": settings.samples_per_chunk,
        "seed": settings.seed,
        "dtype": settings.stated_dtype,
        "step": "chunk",
        "work": "empty kernels" if settings.empty_kernels else "learning" if job.plan.learn else "forward",
        "device_note": device.note,
    }


def training_text(job: Job) -> ChunkedText:
    """The text of the chunks; if the model learns, without the text that is held out."""
    if not job.plan.learn:
        return job.text
    from reference_trainer.lm.heldout import split

    return split(job.text)[0]


def open_source(job: Job) -> Source:
    """The same chunks whatever the plan; if the model learns, without the text that is held out. The caller closes it.

    :raises TrainerError: a text too short for a chunk, or shards that do not fit.
    """
    settings, chosen, text = job.settings, job.plan, training_text(job)
    if chosen.tokenize == "shards":
        from reference_trainer.lm.shard_writer import ensure_shards
        from reference_trainer.lm.shards import ShardChunks

        return ShardChunks(ensure_shards(job.text, settings.shards), text, verbose=settings.verbose)
    if chosen.parallel_tokenize:
        from reference_trainer.lm.parallel_tokenize import ParallelChunks

        return ParallelChunks(text, verbose=settings.verbose)
    return Chunks(text, batch=chosen.tokenize == "batch", verbose=settings.verbose)
