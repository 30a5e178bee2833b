"""Reads NVIDIA GPUs through NVML: utilization, memory, power, clocks, throttling, PCIe, temperature.

`GpuCollector` samples them during a recording, `GpuReader` reads them once, for the live view and for the doctor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from profiler.core.live import GpuUse
from profiler.record.collectors import Context, Sampler
from profiler.run.model import CollectorStatus
from profiler.run.tables import LEVELS

HIDDEN: Final = "NVML names no process of this program (a container hides them): every GPU here is shown"
_MHZ: Final = 1e6
_KIB: Final = 1024
_PCIE_EVERY: Final = 5  # NVML measures PCIe over 20 ms each time it is asked: two waits a reading
Query = Callable[[Any, Any], Any]
"""Asks NVML (the module `pynvml`) for a value of the GPU with a handle."""

SAMPLES: Final[Mapping[str, Query]] = {
    "gpu.util": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
    "gpu.memory_used": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "gpu.power": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "gpu.clock_sm": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * _MHZ,
    "gpu.clock_memory": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) * _MHZ,
    "gpu.throttle": lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
    "gpu.temperature": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
}
"""Queries of every reading of a GPU, in the units of `profiler.core.metrics`."""
_IN_USE: Final = ("gpu.util", "gpu.memory_used", "gpu.power", "gpu.throttle")
"""The names of SAMPLES that are fields of GpuUse; reading each costs a call of the driver."""
PCIE_SAMPLES: Final[Mapping[str, Query]] = {
    "gpu.pcie_rx": lambda nvml, gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_RX_BYTES) * _KIB,
    "gpu.pcie_tx": lambda nvml, gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, nvml.NVML_PCIE_UTIL_TX_BYTES) * _KIB,
}
"""Queries of every fifth reading."""
PROPERTIES: Final[Mapping[str, Query]] = {
    "name": lambda nvml, gpu: _text(nvml.nvmlDeviceGetName(gpu)),
    "memory_bytes": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    "driver": lambda nvml, _: _text(nvml.nvmlSystemGetDriverVersion()),
    "compute_capability": lambda nvml, gpu: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(gpu)),
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    "clock_sm_max_hz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) * _MHZ,
    "clock_memory_max_hz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM) * _MHZ,
}
"""Queries of values that do not change during a run."""


_THROTTLED_BY: Final[Mapping[int, str]] = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
"""Bits of NVML's clock event reasons (nvml.h) that hold clocks down; idle and settings are no throttling."""


class NvmlError(Exception):
    """NVML cannot be used here; the message is one line."""

    def __init__(self, reason: str, *, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


class Nvml:
    """NVML, initialised, with a handle for every GPU.

    :raises NvmlError: the package, the driver or a GPU is missing.
    """

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError as error:
            reason = f"nvidia-ml-py cannot be imported: {error}"
            raise NvmlError(reason, remedy="pip install nvidia-ml-py") from error
        try:
            pynvml.nvmlInit()
            count = int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            raise NvmlError(f"no NVIDIA driver found ({error})") from error
        if count == 0:
            pynvml.nvmlShutdown()
            raise NvmlError("the NVIDIA driver shows no GPU")
        self.api: Any = pynvml
        self.handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]

    def ask(self, query: Query, handle: Any) -> Any:
        """Return the answer to `query`; None where this GPU or driver does not support it."""
        try:
            return query(self.api, handle)
        except self.api.NVMLError:
            return None

    def properties(self, handle: Any) -> dict[str, Any]:
        """PROPERTIES of one GPU."""
        return {name: self.ask(query, handle) for name, query in PROPERTIES.items()}

    def processes(self, handle: Any) -> set[int]:
        """Return the processes that NVML knows to compute on this GPU."""
        processes = self.ask(lambda nvml, gpu: nvml.nvmlDeviceGetComputeRunningProcesses(gpu), handle)
        return {int(process.pid) for process in processes or ()}

    def close(self) -> None:
        with suppress(self.api.NVMLError):
            self.api.nvmlShutdown()


class GpuCollector:
    """A thread in the recorder that asks the driver; nothing runs on the GPU for it."""

    name = "gpu"
    levels = LEVELS
    start_order = 2

    def available(self) -> str | None:
        try:
            self._nvml = Nvml()
        except NvmlError as error:
            return str(error)
        return None

    def describe(self) -> Mapping[str, Any]:
        handles = enumerate(self._nvml.handles)
        return {"devices": tuple({"index": index, **self._nvml.properties(handle)} for index, handle in handles)}

    def start(self, context: Context) -> None:
        self._writer = context.writer
        self._readings = 0
        self._unsupported: set[tuple[int, str]] = set()
        self._sampler = Sampler(self.name, context.spec.sample_period, self._sample)

    def stop(self) -> CollectorStatus:
        status = self._sampler.stop()
        self._nvml.close()
        return status

    def _sample(self) -> int:
        """Ask every GPU. A query that a GPU or driver does not support is sent once; a lost GPU ends the collector."""
        api = self._nvml.api
        queries = {**SAMPLES, **({} if self._readings % _PCIE_EVERY else PCIE_SAMPLES)}
        self._readings += 1
        rows: list[tuple[int, int, str, float]] = []
        for index, handle in enumerate(self._nvml.handles):
            for name in [name for name in queries if (index, name) not in self._unsupported]:
                try:
                    rows.append((0, index, name, float(queries[name](api, handle))))
                except api.NVMLError as error:
                    if getattr(error, "value", None) == api.NVML_ERROR_GPU_IS_LOST:
                        raise
                    self._unsupported.add((index, name))
        self._writer.samples(time.monotonic_ns(), rows)
        return len(rows)


class GpuReader:
    """Reads GPUs now and then; `error` tells why there are none."""

    def __init__(self) -> None:
        self.error: NvmlError | None = None
        try:
            self._nvml = Nvml()
        except NvmlError as error:
            self.error = error

    def read(self, pids: Collection[int], *, uses_cuda: bool) -> tuple[tuple[GpuUse, ...], str]:
        """Return the GPUs that processes of `pids` use, and a note: why there are none, or whose they are.

        :param uses_cuda: whether the program has the driver open, for when NVML does not name its processes.
        """
        if self.error:
            return (), f"no GPU here: {self.error}"
        handles = self._nvml.handles
        used = [index for index, handle in enumerate(handles) if self._nvml.processes(handle) & set(pids)]
        if used:
            return tuple(self._use(index) for index in used), ""
        if uses_cuda:
            return self.all(), HIDDEN
        count = f"{len(handles)} GPU{'s are' if len(handles) > 1 else ' is'} here"
        return (), f"the program uses no GPU ({count})"

    def all(self) -> tuple[GpuUse, ...]:
        """Return every GPU of the machine."""
        return () if self.error else tuple(self._use(index) for index in range(len(self._nvml.handles)))

    def driver(self) -> str:
        """Version of the driver."""
        return str(PROPERTIES["driver"](self._nvml.api, None))

    def close(self) -> None:
        if not self.error:
            self._nvml.close()

    def _use(self, index: int) -> GpuUse:
        handle = self._nvml.handles[index]
        properties = self._nvml.properties(handle)
        utilization, memory_used, power, throttle = (self._nvml.ask(SAMPLES[name], handle) for name in _IN_USE)
        memory_total = properties["memory_bytes"]
        return GpuUse(
            index=index,
            name=properties["name"] or "GPU",
            utilization=utilization,
            memory_used=memory_used,
            memory_total=None if memory_total is None else float(memory_total),
            power=power,
            power_limit=properties["power_limit_w"],
            throttle=None if throttle is None else throttle_reasons(int(throttle)),
        )


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Name the reasons why the clocks are held down, from NVML's bit mask."""
    return tuple(reason for bit, reason in _THROTTLED_BY.items() if bits & bit)


def _text(value: str | bytes) -> str:
    """nvidia-ml-py gave bytes before version 11.5."""
    return value.decode() if isinstance(value, bytes) else value


PLUGIN = GpuCollector
