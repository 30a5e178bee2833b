"""Reads the GPUs that a program uses, one reading at a time: for the live view and for the doctor."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

from profiler.core.live import THROTTLED_BY, GpuUse
from profiler.record.collectors.gpu import GpuCollector, questions

HIDDEN: Final = "NVML names no process of this program (a container hides them): every GPU here is shown"


class Gpus:
    """NVML, opened once; `reason` says why there is none."""

    def __init__(self) -> None:
        self._collector = GpuCollector()
        self.reason = self._collector.available() or ""

    def read(self, pids: Collection[int], *, uses_cuda: bool) -> tuple[tuple[GpuUse, ...], str]:
        """The GPUs that processes of `pids` use, and a note: why there are none, or whose they are.

        :param uses_cuda: whether the program has the driver open, for when NVML does not name its processes.
        """
        if self.reason:
            return (), f"no GPU here: {self.reason}"
        nvml, handles = self._collector.nvml, self._collector.handles
        own = [index for index, handle in enumerate(handles) if _processes(nvml, handle) & set(pids)]
        if own:
            return tuple(self._use(index) for index in own), ""
        if uses_cuda:
            return tuple(self._use(index) for index in range(len(handles))), HIDDEN
        count = f"{len(handles)} GPU{'s are' if len(handles) > 1 else ' is'} here"
        return (), f"the program uses no GPU ({count})"

    def driver(self) -> str:
        """Its version."""
        version = self._collector.nvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else str(version)

    def close(self) -> None:
        if not self.reason:
            with suppress(self._collector.nvml.NVMLError):
                self._collector.nvml.nvmlShutdown()

    def _use(self, index: int) -> GpuUse:
        nvml, handle = self._collector.nvml, self._collector.handles[index]
        asked = questions(nvml, handle, pcie=False)

        def ask(question: Callable[[], Any]) -> Any:
            try:
                return question()
            except nvml.NVMLError:
                return None  # this GPU or driver does not tell

        bits = ask(asked["gpu.throttle"])
        name = ask(lambda: nvml.nvmlDeviceGetName(handle))
        limit = ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000)
        return GpuUse(
            index=index,
            name=name.decode() if isinstance(name, bytes) else name or "GPU",
            utilization=ask(asked["gpu.util"]),
            memory_used=ask(asked["gpu.memory_used"]),
            memory_total=ask(lambda: float(nvml.nvmlDeviceGetMemoryInfo(handle).total)),
            power=ask(asked["gpu.power"]),
            power_limit=limit,
            throttle=None if bits is None else throttled_by(int(bits)),
        )


def throttled_by(bits: int) -> tuple[str, ...]:
    """What holds the clocks down, in words."""
    return tuple(word for bit, word in THROTTLED_BY.items() if bits & bit)


def _processes(nvml: Any, handle: Any) -> set[int]:
    """Of which NVML knows that they compute on this GPU."""
    try:
        return {int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    except nvml.NVMLError:
        return set()
