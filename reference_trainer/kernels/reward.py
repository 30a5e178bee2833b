"""Adds the reward of one token to the sum that updates the neuromodulator."""

from __future__ import annotations

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import vector
from reference_trainer.kernels.on_cuda import on_cuda


def host(command):
    """Compute correct (1,) += reward (1,). Arguments: correct, reward."""
    correct = vector(command, 0, 1)
    correct[0] += vector(command, 1, 1)[0]


@on_cuda("void(float32[::1], float32[::1])")
def add_reward(correct, reward):
    """Do it by one thread."""
    correct[0] += reward[0]


def cuda(device, correct, reward):
    device.start(add_reward, 1, 1, correct, reward)


KERNEL = Kernel("reward", host=host, cuda=cuda)
