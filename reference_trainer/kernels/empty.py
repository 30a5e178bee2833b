"""The empty kernel: what a call pattern costs when the device does nothing."""

from __future__ import annotations

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.on_cuda import on_cuda


def host(command):
    """Does nothing."""


@on_cuda("void()")
def nothing():
    """Does nothing."""


def cuda(device, *arguments):
    device.start(nothing, 1, 1)


KERNEL = Kernel("empty", host=host, cuda=cuda)
