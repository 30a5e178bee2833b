"""Applies the settings: torch's switches, narrower arithmetic, and memory that is released at intervals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from reference_trainer.performance.config import PerformanceConfig, refuse

if TYPE_CHECKING:
    import torch

ON_CPU: Final = {
    "cudnn_benchmark": "cuDNN is of NVIDIA GPUs, and this runs on a CPU",
    "cudnn_deterministic": "cuDNN is of NVIDIA GPUs, and this runs on a CPU",
    "empty_cache_frequency": "torch keeps no memory in store on a CPU",
    "tf32": "only GPUs have such products, and this runs on a CPU",
}
"""Settings that have no effect on a CPU, and why."""


def apply(config: PerformanceConfig, device: str | torch.device = "cpu", *, sharing: int = 1) -> None:
    """Set torch's switches in this process: for cuDNN, for TF32 and, on a GPU, for the memory that it may take.

    :param device: cpu, cuda, cuda:0, ...
    :param sharing: number of processes, including this one, that share that memory equally.
    :raises TrainerError: a changed setting has no effect on such a device.
    """
    import torch

    chosen = torch.device(device)
    if chosen.type == "cpu":
        refuse(config, ON_CPU)
        _half_needs_a_gpu(config)
        return
    torch.backends.cudnn.benchmark = config.cudnn_benchmark
    torch.backends.cudnn.deterministic = config.cudnn_deterministic
    torch.backends.cudnn.allow_tf32 = config.tf32
    torch.backends.cuda.matmul.allow_tf32 = config.tf32
    # torch takes no device without a number here, and no whole number as a share: a file may say max_memory = 1
    index = torch.cuda.current_device() if chosen.index is None else chosen.index
    torch.cuda.set_per_process_memory_fraction(float(config.max_memory) / sharing, index)


def autocast(config: PerformanceConfig, device: str | torch.device = "cpu") -> AbstractContextManager[object]:
    """Return a context for the passes of a model that narrows their arithmetic to `precision`; fp32 changes nothing.

    :raises TrainerError: the device does not support it.
    """
    if config.precision == "fp32":
        return nullcontext()
    import torch

    chosen = torch.device(device)
    if chosen.type == "cpu":
        _half_needs_a_gpu(config)
    return torch.autocast(chosen.type, dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[config.precision])


def emptying(config: PerformanceConfig, device: str | torch.device = "cpu") -> Callable[[], None]:
    """Return a function to call after every job; it releases unused memory every `empty_cache_frequency` jobs."""
    every, done = config.empty_cache_frequency, 0
    if not every:
        return _nothing
    import torch

    if torch.device(device).type == "cpu":
        return _nothing

    def after() -> None:
        nonlocal done
        done += 1
        if done % every == 0:
            torch.cuda.empty_cache()

    return after


def _nothing() -> None:
    """Release nothing."""


def _half_needs_a_gpu(config: PerformanceConfig) -> None:
    """Refuse fp16 on a CPU, which computes it by way of fp32; bf16 at least keeps the range of fp32."""
    if config.precision == "fp16":
        refuse(config, {"precision": "fp16 needs a GPU, on a CPU choose bf16"})
