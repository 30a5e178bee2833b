"""Measures how busy the devices of a sweep were: GPUs by sampling their driver, CPUs by the CPU time of the workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from reference_trainer.ssm.engine import Engine
from reference_trainer.ssm.group_work import GroupResult
from reference_trainer.ssm.placement import CPU, cores
from reference_trainer.ssm.statistics import Used

_EVERY_S: Final = 0.2
"""Seconds between samples. The driver averages over the last 1/6 s to 1 s."""


class Utilisation:
    """A context that samples the utilization of GPUs; the means are read after it."""

    def __init__(self, names: Sequence[str], read: Callable[[str], float] | None = None) -> None:
        """Prepare to sample devices.

        :param names: device names; a CPU is not sampled.
        :param read: returns the current share for a device; None: NVML.
        """
        self._read = read or _nvml
        self._sums = {name: 0.0 for name in names if name.startswith("cuda")}
        self._samples = 0
        self.why = ""
        """Why there is no mean."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        if self._sums:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def mean(self, name: str) -> float | None:
        """The share of time in which a device was busy; None: it was not sampled."""
        return self._sums[name] / self._samples if self._samples and name in self._sums else None

    def _sample(self) -> None:
        while True:
            try:
                now = {name: self._read(name) for name in self._sums}
            except Exception as error:  # noqa: BLE001 - a thread's edge; NVML and torch raise errors of their own
                self.why = " ".join(str(error).split()) or type(error).__name__
                return
            for name, value in now.items():
                self._sums[name] += value
            self._samples += 1
            if self._ended.wait(_EVERY_S):
                return


def _nvml(name: str) -> float:
    import torch

    return torch.cuda.utilization(name) / 100


def used(worked: Sequence[GroupResult], engine: Engine, utilisation: Utilisation, wall: float) -> dict[str, Used]:
    """How much each device was used, by name."""
    result: dict[str, Used] = {}
    names = dict.fromkeys([*engine.device_names, *(group.slot for group in worked)])
    for name in names:
        here = [group for group in worked if group.slot == name]
        workers = engine.device_names.count(name) or len({group.process for group in here})
        share, why_not = _utilisation(name, here, engine, utilisation, wall)
        jobs = sum(len(group.outcomes) for group in here)
        result[name] = Used(jobs, sum(group.seconds for group in here) / (wall * workers), share, why_not)
    return result


def _utilisation(
    name: str, worked: Sequence[GroupResult], engine: Engine, utilisation: Utilisation, wall: float
) -> tuple[float | None, str]:
    if name.endswith(CPU):
        available = worked[0].cores if worked else cores()
        return sum(group.cpu_seconds for group in worked) / (wall * available), ""
    if name not in engine.device_names:
        return None, "it belongs to a cluster and is not sampled from this machine"
    share = utilisation.mean(name)
    return share, "" if share is not None else utilisation.why or "no sample was taken"
