"""Measures the batch size at which a device is fastest: it tries sizes and uses no formula for their memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from reference_trainer.errors import TrainerError
from reference_trainer.performance.config import PerformanceConfig
from reference_trainer.performance.memory import get_memory_stats, reset_peak

if TYPE_CHECKING:
    import torch

_ENOUGH: Final = 0.95
"""The smallest size with this share of the highest rate is chosen: a larger batch only takes more memory."""
_PATIENCE: Final = 2
"""Doublings without a gain after which larger sizes are not tried."""
_RUNS: Final = 3
_LONG: Final = 0.5
"""Seconds; one run is enough if it takes at least this long."""
_FINE: Final = 8
"""Bisection ends when the interval is less than this fraction (1/8) of the size that fits."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One size that was tried."""

    size: int
    per_s: float | None
    """Items per second; None if it did not fit."""
    memory: int | None
    """Bytes that it took in addition to those in use before; None: unknown."""
    why: str = ""
    """The reason why it did not fit; empty: it did."""


def get_optimal_batch_size(
    run: Callable[[int], object],
    device: str | torch.device = "cpu",
    *,
    largest: int,
    config: PerformanceConfig | None = None,
) -> int:
    """Return the smallest size that reaches at least 95% of the highest rate, within the memory allowed.

    :param run: does the work of a batch of that size; called several times for each size, results are dropped.
    :param largest: larger sizes are not tried.
    :param config: its `max_memory` limits the sizes.
    :raises TrainerError: not even a batch of 1 fits.
    """
    probes = probe_batch_sizes(run, device, largest=largest, config=config)
    fitting = {probe.size: probe.per_s for probe in probes if probe.per_s is not None}
    if not fitting:
        raise TrainerError(f"not even a batch of 1 fits device {device}: {probes[0].why}")
    best = max(fitting.values())
    return min(size for size, per_s in fitting.items() if per_s >= _ENOUGH * best)


def probe_batch_sizes(
    run: Callable[[int], object],
    device: str | torch.device = "cpu",
    *,
    largest: int,
    config: PerformanceConfig | None = None,
) -> tuple[Probe, ...]:
    """Try sizes: double them until one does not fit or gives no gain, then bisect; return the probes in that order."""
    if largest < 1:
        raise TrainerError(f"batch size: at most {largest}, it must be at least 1")
    prober = _Prober(run, str(device), (config or PerformanceConfig()).max_memory)
    size, best, waited = 1, 0.0, 0
    while True:
        probe = prober.tried(size)
        if probe.per_s is None:
            prober.bisect(size)
            break
        waited = 0 if probe.per_s * _ENOUGH > best else waited + 1
        best = max(best, probe.per_s)
        if size == largest or waited >= _PATIENCE:
            break
        size = min(2 * size, largest)
    return tuple(prober.probes)


class _Prober:
    """Tries sizes and remembers them."""

    def __init__(self, run: Callable[[int], object], device: str, share: float) -> None:
        self._run = run
        self._device = device
        self._share = share
        self.probes: list[Probe] = []

    def bisect(self, too_large: int) -> None:
        """Try sizes between the largest that fits and the smallest that does not, if the largest was the fastest."""
        fitting = [probe for probe in self.probes if probe.per_s is not None]
        if not fitting or fitting[-1].per_s != max(probe.per_s or 0.0 for probe in fitting):
            return
        low, high = fitting[-1].size, too_large
        while high - low > max(low // _FINE, 1):
            middle = (low + high) // 2
            if self.tried(middle).per_s is None:
                high = middle
            else:
                low = middle

    def tried(self, size: int) -> Probe:
        probe = self._try(size)
        self.probes.append(probe)
        return probe

    def _try(self, size: int) -> Probe:
        allowed = self._allowed()
        if (expected := self._expected(size)) and allowed is not None and expected > allowed:
            # On a CPU the kernel kills a process that takes too much, without an error: this size is not tried.
            return Probe(size, None, None, f"it would take some {expected:,} bytes, {allowed:,} are left")
        stats = get_memory_stats(self._device)
        before, resettable = stats.allocated, reset_peak(self._device)
        try:
            seconds = self._seconds(size)
        except Exception as error:
            if not out_of_memory(error):
                raise
            why = " ".join(str(error).split()) or type(error).__name__
        else:
            after = get_memory_stats(self._device)
            now = after.peak if resettable else after.allocated
            took = None if now is None or before is None else max(now - before, 0)
            if took is None or allowed is None or took <= allowed:
                return Probe(size, size / seconds, took)
            why = f"it took {took:,} bytes, {allowed:,} are allowed"
        self._forget()
        return Probe(size, None, None, why)

    def _seconds(self, size: int) -> float:
        """Return the median time of a run, after an uncounted one that compiles kernels and allocates memory."""
        self._run(size)
        self._wait()
        peaks: list[float] = []
        while len(peaks) < _RUNS and (not peaks or peaks[0] < _LONG):
            began = time.perf_counter()
            self._run(size)
            self._wait()
            peaks.append(time.perf_counter() - began)
        return max(median(peaks), 1e-9)

    def _allowed(self) -> int | None:
        """Return the bytes that may be taken in addition to those in use; torch's cache counts as free."""
        stats = get_memory_stats(self._device)
        if stats.total is None or stats.free is None:
            return None
        stored = max((stats.reserved or 0) - (stats.allocated or 0), 0) if stats.reserved is not None else 0
        return max(int(self._share * stats.total) - (stats.total - stats.free - stored), 0)

    def _expected(self, size: int) -> int:
        """Estimate the bytes from the largest batch so far that fitted, on a CPU only; 0: unknown."""
        fitting = [probe for probe in self.probes if probe.memory]
        if self._device != "cpu" or not fitting:
            return 0
        last = max(fitting, key=lambda probe: probe.size)
        return int((last.memory or 0) * size / last.size)

    def _wait(self) -> None:
        if self._device != "cpu":
            import torch

            torch.cuda.synchronize(self._device)

    def _forget(self) -> None:
        """Release what the failed batch left in torch's cache."""
        if self._device != "cpu":
            import torch

            torch.cuda.empty_cache()


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out: an error of torch on a GPU or on a CPU, or a MemoryError."""
    if isinstance(error, MemoryError):
        return True
    kinds = {kind.__name__ for kind in type(error).__mro__}  # by name: torch need not be loaded
    return "OutOfMemoryError" in kinds or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
