"""Measures the phases and the throughput of a training loop, marks the phases, and makes values for a tracker.

Times are those of the host: a GPU may work on while the host is in the next phase. Nothing here waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from profiler import marks


class Phase(StrEnum):
    """What a training program does."""

    DATA = "data"
    MODEL = "forward and backward"
    OPTIMIZER = "optimizer"
    LOG = "log"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    TRAINING = "training"  # data, model and optimizer, where nothing tells them apart
    OTHER = "other"


_MARKED: Final = (Phase.EVALUATION, Phase.CHECKPOINT, Phase.LOG)
"""Phases that become regions of a recording; its hooks record the others."""
_APART: Final = (Phase.EVALUATION, Phase.CHECKPOINT)
"""Phases whose time is no part of the throughput."""
FLOPS: Final = 6
"""Operations per parameter and token: 2 forward and 4 backward (Kaplan et al. 2020, arXiv:2001.08361, section 2.1).
Attention is not counted, and neither is what is computed a second time."""

_PEAKS: Final[Mapping[str, tuple[float, float]]] = {
    "NVIDIA A100-PCIE-40GB": (312e12, 156e12),
    "NVIDIA A100-SXM4-40GB": (312e12, 156e12),
    "NVIDIA A100 80GB PCIe": (312e12, 156e12),
    "NVIDIA A100-SXM4-80GB": (312e12, 156e12),
    "NVIDIA H100 PCIe": (756e12, 378e12),
    "NVIDIA H100 80GB HBM3": (989.4e12, 494.7e12),
    "NVIDIA H200": (989.4e12, 494.7e12),
    "NVIDIA L4": (121e12, 60e12),
    "NVIDIA L40S": (362e12, 183e12),
}
"""Name that torch gives to a card -> operations per second of dense matrix products in 16 bits, and in TF32. NVIDIA's
data sheets of the cards; where a sheet tells only figures with sparsity, half of these. Parts of a card (MIG) have
other names."""


class Meter:
    """Gives the time between the events of a training loop to its phases.

    :param flops_per_token: operations of the model per token of training; None: they are not known.
    :param peak_flops: operations per second of one device; None: they are not known.
    :param devices: how many devices train.
    """

    def __init__(self, flops_per_token: float | None, peak_flops: float | None, devices: int = 1) -> None:
        self.flops_per_token = flops_per_token
        self.peak_flops = peak_flops
        self.devices = devices
        self.restart()

    def restart(self) -> None:
        """Forget what has passed until now."""
        self._phases: dict[str, int] = {}
        self._since = marks.now()

    def passed(self, phase: str) -> None:
        """Count the time since the last event as time of `phase`."""
        now = marks.now()
        self._phases[phase] = self._phases.get(phase, 0) + now - self._since
        recorder = marks.recorder()
        if recorder is not None and recorder.detailed and phase in _MARKED:
            recorder.region(phase, self._since, recorder.thread.depth)
        self._since = now

    def values(self, steps: int, *, tokens: float = 0, samples: float = 0) -> dict[str, float]:
        """Return the values for a tracker since the last call, and begin anew; none where no step has ended.

        :param tokens: of all devices; without any, `samples` are logged.
        """
        training = sum(ns for phase, ns in self._phases.items() if phase not in _APART) / 1e9
        if steps <= 0 or training <= 0:
            return {}
        values = {}
        if tokens or samples:
            values[f"profiler/{'tokens' if tokens else 'samples'}_per_second"] = (tokens or samples) / training
        if tokens and self.flops_per_token and self.peak_flops:
            flops = tokens * self.flops_per_token / training
            values["profiler/mfu"] = flops / (self.peak_flops * self.devices)
        for phase, ns in self._phases.items():
            values[f"profiler/ms_{phase.replace(' ', '_')}"] = ns / 1e6 / steps
        self._phases = {}
        return values


def count_flops(model: Any) -> float | None:
    """Return six operations for each parameter outside of embeddings; None for a model without such parameters."""
    from torch.nn import Embedding

    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, Embedding)}
    count = sum(each.numel() for each in model.parameters() if id(each) not in embeddings)
    return float(FLOPS * count) or None


def known_peak(*, half: bool) -> float | None:
    """Return the peak of the GPU that this process uses; None where there is none, or its peak is not known.

    :param half: the model computes in 16 bits.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    peaks = _PEAKS.get(torch.cuda.get_device_name())
    return peaks and peaks[0 if half else 1]


def count_batch(batch: Any) -> tuple[int, int]:
    """Return the tokens of a batch, which are the elements of its `input_ids`, and its samples: 0 where unknown."""
    tokens = getattr(batch["input_ids"], "numel", int)() if isinstance(batch, Mapping) and "input_ids" in batch else 0
    return tokens, _samples(batch)


def _samples(batch: Any) -> int:
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        return next((count for each in batch if (count := _samples(each))), 0)
    shape: Sequence[int] = getattr(batch, "shape", ())
    return int(shape[0]) if len(shape) else 0
