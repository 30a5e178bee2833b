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
    return ("host", "") if name == "host" else cuda_or("host", name)


def cuda_or(fallback: str, name: str) -> tuple[str, str]:
    """The kind of device, cuda or the fallback, and a note for the report on why a GPU is not used.

    :param name: auto: the fallback is used if CUDA cannot be.
    :raises TrainerError: CUDA cannot be used, and the name is another.
    """
    from reference_trainer.devices import cuda_probe

    missing = cuda_probe.unavailable()
    if not missing:
        return "cuda", ""
    if name != "auto":
        raise TrainerError(f"device {name}: {missing}")
    no_driver = missing.startswith(cuda_probe.NO_DRIVER)
    return fallback, "" if no_driver else f"there is a GPU, but CUDA cannot be used: {missing}"


def open_device(
    name: str, *, blocking_wait: bool = False, empty_kernels: bool = False, products: str = "fp32"
) -> Device:
    """Open the device of that name.

    :param products: fp32, or tf32 or bf16, to which the inputs of matrix products of whole chunks are rounded.

    :raises TrainerError: there is none.
    """
    kind, note = kind_of(name)
    if kind == "cuda":
        from reference_trainer.devices.cuda import CudaDevice

        return CudaDevice(blocking_wait=blocking_wait, empty_kernels=empty_kernels, products=products)
    from reference_trainer.devices.host import HostDevice

    device = HostDevice(blocking_wait=blocking_wait, empty_kernels=empty_kernels, products=products)
    device.note = note
    return device
