"""The empty kernel, by which the cost of a call pattern alone is measured."""

from __future__ import annotations

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.on_cuda import on_cuda


def host(command):
    """Do nothing."""


@on_cuda("void()")
def nothing():
    """Do nothing."""


def cuda(device, *arguments):
    device.start(nothing, 1, 1)


KERNEL = Kernel("empty", host=host, cuda=cuda)
