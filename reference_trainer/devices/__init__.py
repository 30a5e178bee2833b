"""Devices that the trainer runs on: `host`, made of a CPU core, and `cuda`."""

from __future__ import annotations

from reference_trainer.devices.protocol import Device
from reference_trainer.errors import TrainerError

NAMES = ("auto", "host", "cuda")


def kind_of(name: str) -> tuple[str, str]:
    """The kind of device that the name stands for on this machine, host or cuda, and a note for the report.

    `auto` selects CUDA if it is available.

    :raises TrainerError: there is no such name, or no such device.
    """
    if name not in NAMES:
        raise TrainerError(f"unknown device {name!r}: choose one of {', '.join(NAMES)}")
    if name == "host":
        return "host", ""
    from reference_trainer.devices import cuda, cuda_probe

    missing = cuda.unavailable()
    if not missing:
        return "cuda", ""
    if name == "cuda":
        raise TrainerError(f"device cuda: {missing}")
    no_driver = missing.startswith(cuda_probe.NO_DRIVER)
    return "host", "" if no_driver else f"there is a GPU, but CUDA was not taken: {missing}"


def open_device(name: str, *, blocking_wait: bool = False, empty_kernels: bool = False) -> Device:
    """Open the device of that name.

    :raises TrainerError: there is none.
    """
    kind, note = kind_of(name)
    if kind == "cuda":
        from reference_trainer.devices.cuda import CudaDevice

        return CudaDevice(blocking_wait=blocking_wait, empty_kernels=empty_kernels)
    from reference_trainer.devices.host import HostDevice

    device = HostDevice(blocking_wait=blocking_wait, empty_kernels=empty_kernels)
    device.note = note
    return device
