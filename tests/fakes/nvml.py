"""A fake of the module `pynvml`: two GPUs, of which the second tells less."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """Has the number of the error as its value, as the exception of nvidia-ml-py has."""

    def __init__(self, value: int, text: str = "") -> None:
        super().__init__(text)
        self.value = value


NOT_SUPPORTED = 3
LOST = 15


class FakeNvml(SimpleNamespace):
    """`lost_after`: the GPUs fall off the bus after so many readings of the utilization."""

    NVMLError = NVMLError
    NVML_ERROR_GPU_IS_LOST = LOST
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_TEMPERATURE_GPU = 0
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1

    def __init__(self, *, gpus: int = 2, driver: bool = True, lost_after: int | None = None) -> None:
        super().__init__(gpus=gpus, driver=driver, lost_after=lost_after, readings=0, shut=0)

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise NVMLError(12, "NVML Shared Library Not Found")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shut += 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return int(self.gpus)

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Any:  # noqa: N802
        self.readings += 1
        if self.lost_after is not None and self.readings > self.lost_after:
            raise NVMLError(LOST, "GPU is lost")
        return SimpleNamespace(gpu=37, memory=5)

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=141 << 30, used=(gpu + 1) << 30)

    def nvmlDeviceGetPcieThroughput(self, gpu: int, counter: int) -> int:  # noqa: N802
        if gpu:
            raise NVMLError(NOT_SUPPORTED, "Not Supported")
        return 2000 + counter

    def __getattr__(self, name: str) -> Any:
        values = {
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetName": lambda gpu: b"Fake GPU",
            "nvmlSystemGetDriverVersion": lambda: "550.1",
            "nvmlDeviceGetCudaComputeCapability": lambda gpu: (9, 0),
            "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: 700_000,
            "nvmlDeviceGetMaxClockInfo": lambda gpu, clock: 1980 * clock,
            "nvmlDeviceGetClockInfo": lambda gpu, clock: 1500 * clock,
            "nvmlDeviceGetPowerUsage": lambda gpu: 123_400,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: 4,
            "nvmlDeviceGetTemperature": lambda gpu, sensor: 41,
        }
        if name in values:
            return values[name]
        raise AttributeError(name)
