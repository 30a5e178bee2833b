"""NVIDIA GPUs through NVML: utilisation, memory, power, clocks, throttling, PCIe, temperature.

`GpuCollector` samples them during a recording, `GpuReader` reads them once, for the live view and for the doctor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from profiler.core.live import THROTTLED_BY, GpuUse
from profiler.record.collector import Context, Sampler
from profiler.run.model import CollectorStatus
from profiler.run.tables import LEVELS

HIDDEN: Final = "NVML names no process of this program (a container hides them): every GPU here is shown"
_MHZ: Final = 1e6
_KIB: Final = 1024
_PCIE_EVERY: Final = 5  # NVML measures PCIe over 20 ms each time it is asked: two waits a reading
Row = tuple[int, int, str, float]


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

    def ask(self, query: Callable[[], Any]) -> Any:
        """The answer to `query`; None where this GPU or driver does not support it."""
        try:
            return query()
        except self.api.NVMLError:
            return None

    def queries(self, handle: Any, *, pcie: bool) -> dict[str, Callable[[], float]]:
        """What to sample of one GPU, in the units of `profiler.core.samples`."""
        api = self.api
        queries: dict[str, Callable[[], float]] = {
            "gpu.util": lambda: api.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            "gpu.memory_used": lambda: api.nvmlDeviceGetMemoryInfo(handle).used,
            "gpu.power": lambda: api.nvmlDeviceGetPowerUsage(handle) / 1000,
            "gpu.clock_sm": lambda: api.nvmlDeviceGetClockInfo(handle, api.NVML_CLOCK_SM) * _MHZ,
            "gpu.clock_memory": lambda: api.nvmlDeviceGetClockInfo(handle, api.NVML_CLOCK_MEM) * _MHZ,
            "gpu.throttle": lambda: api.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            "gpu.temperature": lambda: api.nvmlDeviceGetTemperature(handle, api.NVML_TEMPERATURE_GPU),
        }
        if pcie:
            received, sent = api.NVML_PCIE_UTIL_RX_BYTES, api.NVML_PCIE_UTIL_TX_BYTES
            queries["gpu.pcie_rx"] = lambda: api.nvmlDeviceGetPcieThroughput(handle, received) * _KIB
            queries["gpu.pcie_tx"] = lambda: api.nvmlDeviceGetPcieThroughput(handle, sent) * _KIB
        return queries

    def properties(self, handle: Any) -> dict[str, Any]:
        """What does not change during a run; None where this GPU or driver does not support it."""
        api = self.api
        queries: dict[str, Callable[[], Any]] = {
            "name": lambda: _text(api.nvmlDeviceGetName(handle)),
            "memory_bytes": lambda: int(api.nvmlDeviceGetMemoryInfo(handle).total),
            "driver": lambda: _text(api.nvmlSystemGetDriverVersion()),
            "compute_capability": lambda: "{}.{}".format(*api.nvmlDeviceGetCudaComputeCapability(handle)),
            "power_limit_w": lambda: api.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            "clock_sm_max_hz": lambda: api.nvmlDeviceGetMaxClockInfo(handle, api.NVML_CLOCK_SM) * _MHZ,
            "clock_memory_max_hz": lambda: api.nvmlDeviceGetMaxClockInfo(handle, api.NVML_CLOCK_MEM) * _MHZ,
        }
        return {name: self.ask(query) for name, query in queries.items()}

    def processes(self, handle: Any) -> set[int]:
        """The processes that NVML knows to compute on this GPU."""
        processes = self.ask(lambda: self.api.nvmlDeviceGetComputeRunningProcesses(handle))
        return {int(process.pid) for process in processes or ()}

    def close(self) -> None:
        with suppress(self.api.NVMLError):
            self.api.nvmlShutdown()


class GpuCollector:
    """A thread in the recorder that asks the driver; nothing runs on the GPU for it."""

    name = "gpu"
    levels = LEVELS

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
        pcie = self._readings % _PCIE_EVERY == 0
        self._readings += 1
        rows: list[Row] = []
        for index, handle in enumerate(self._nvml.handles):
            for name, query in self._nvml.queries(handle, pcie=pcie).items():
                if (index, name) not in self._unsupported:
                    rows += self._read(index, name, query)
        self._writer.samples(time.monotonic_ns(), rows)
        return len(rows)

    def _read(self, index: int, name: str, query: Callable[[], float]) -> list[Row]:
        """One value. What a GPU or driver does not support is asked once; a lost GPU ends the collector."""
        api = self._nvml.api
        try:
            return [(0, index, name, float(query()))]
        except api.NVMLError as error:
            if getattr(error, "value", None) == api.NVML_ERROR_GPU_IS_LOST:
                raise
            self._unsupported.add((index, name))
            return []


class GpuReader:
    """Reads GPUs now and then; `error` tells why there are none."""

    def __init__(self) -> None:
        self.error: NvmlError | None = None
        try:
            self._nvml = Nvml()
        except NvmlError as error:
            self.error = error

    def read(self, pids: Collection[int], *, uses_cuda: bool) -> tuple[tuple[GpuUse, ...], str]:
        """The GPUs that processes of `pids` use, and a note: why there are none, or whose they are.

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
        """Every GPU of the machine."""
        return () if self.error else tuple(self._use(index) for index in range(len(self._nvml.handles)))

    def driver(self) -> str:
        """Version of the driver."""
        return _text(self._nvml.api.nvmlSystemGetDriverVersion())

    def close(self) -> None:
        if not self.error:
            self._nvml.close()

    def _use(self, index: int) -> GpuUse:
        nvml, handle = self._nvml, self._nvml.handles[index]
        queries, properties = nvml.queries(handle, pcie=False), nvml.properties(handle)
        throttle = nvml.ask(queries["gpu.throttle"])
        memory_total = properties["memory_bytes"]
        return GpuUse(
            index=index,
            name=properties["name"] or "GPU",
            utilization=nvml.ask(queries["gpu.util"]),
            memory_used=nvml.ask(queries["gpu.memory_used"]),
            memory_total=None if memory_total is None else float(memory_total),
            power=nvml.ask(queries["gpu.power"]),
            power_limit=properties["power_limit_w"],
            throttle=None if throttle is None else throttle_reasons(int(throttle)),
        )


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """What holds the clocks down, by NVML's bit mask."""
    return tuple(reason for bit, reason in THROTTLED_BY.items() if bits & bit)


def _text(value: str | bytes) -> str:
    """nvidia-ml-py gave bytes before version 11.5."""
    return value.decode() if isinstance(value, bytes) else value


PLUGIN = GpuCollector
