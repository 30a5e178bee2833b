"""Samples every NVIDIA GPU through NVML: use, memory, power, clocks, throttling, PCIe, temperature."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from profiler.record.collector import Context, Sampler
from profiler.run.model import CollectorStatus
from profiler.run.tables import LEVELS

_MHZ: Final = 1e6
_KIB: Final = 1024
_PCIE_EVERY: Final = 5  # NVML measures PCIe over 20 ms each time it is asked: two waits a reading
Row = tuple[int, int, str, float]


class GpuCollector:
    """One thread in the recorder that asks the driver; nothing runs on the GPU for it."""

    name = "gpu"
    levels = LEVELS

    def available(self) -> str | None:
        try:
            import pynvml
        except ImportError as error:
            return f"nvidia-ml-py cannot be imported: {error}"
        try:
            pynvml.nvmlInit()
            count = int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            return f"no NVIDIA driver found ({error})"
        if count == 0:
            pynvml.nvmlShutdown()
            return "the NVIDIA driver shows no GPU"
        self.nvml = pynvml
        self.handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        return None

    def describe(self) -> Mapping[str, Any]:
        return {"devices": tuple(self._device(index, handle) for index, handle in enumerate(self.handles))}

    def _device(self, index: int, handle: Any) -> dict[str, Any]:
        nvml = self.nvml
        questions: dict[str, Callable[[], Any]] = {
            "name": lambda: _text(nvml.nvmlDeviceGetName(handle)),
            "memory_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            "driver": lambda: _text(nvml.nvmlSystemGetDriverVersion()),
            "compute_capability": lambda: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle)),
            "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            "clock_sm_max_hz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * _MHZ,
            "clock_memory_max_hz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM) * _MHZ,
        }
        row: dict[str, Any] = {"index": index}
        for name, ask in questions.items():
            try:
                row[name] = ask()
            except nvml.NVMLError:
                row[name] = None  # this GPU or driver does not tell
        return row

    def start(self, context: Context) -> None:
        self._writer = context.writer
        self._count = 0
        self._refused: set[str] = set()
        self._sampler = Sampler(self.name, context.spec.sample_period, self._take)

    def stop(self) -> CollectorStatus:
        status = self._sampler.stop()
        self.nvml.nvmlShutdown()
        return status

    def _take(self) -> int:
        pcie = self._count % _PCIE_EVERY == 0
        self._count += 1
        rows: list[Row] = []
        for index, handle in enumerate(self.handles):
            for name, ask in questions(self.nvml, handle, pcie=pcie).items():
                rows += self._ask(index, name, ask)
        self._writer.samples(time.monotonic_ns(), rows)
        return len(rows)

    def _ask(self, index: int, name: str, ask: Callable[[], float]) -> list[Row]:
        """One value; what a GPU or driver does not support is asked once. A lost GPU ends the collector."""
        key = f"{index} {name}"
        if key in self._refused:
            return []
        try:
            return [(0, index, name, float(ask()))]
        except self.nvml.NVMLError as error:
            if getattr(error, "value", None) == self.nvml.NVML_ERROR_GPU_IS_LOST:
                raise
            self._refused.add(key)
            return []


def questions(nvml: Any, handle: Any, *, pcie: bool) -> dict[str, Callable[[], float]]:
    """What to ask of one GPU, in the units of `profiler.core.samples`."""
    questions: dict[str, Callable[[], float]] = {
        "gpu.util": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "gpu.memory_used": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "gpu.power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "gpu.clock_sm": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * _MHZ,
        "gpu.clock_memory": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * _MHZ,
        "gpu.throttle": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        "gpu.temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
    }
    if pcie:
        questions["gpu.pcie_rx"] = lambda: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES) * _KIB
        questions["gpu.pcie_tx"] = lambda: nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES) * _KIB
    return questions


def _text(value: str | bytes) -> str:
    """nvidia-ml-py gave bytes before version 11.5."""
    return value.decode() if isinstance(value, bytes) else value


PLUGIN = GpuCollector
