"""The small kernels by which the device does without the host: rewards, metrics of chunks, and the neuromodulator."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.adamw import LAST_RATE, NORM
from reference_trainer.kernels.arguments import indices, number, vector
from reference_trainer.kernels.on_cuda import by_one_thread, gpu, on_cuda, threads_for
from reference_trainer.kernels.reductions import add_to, block_sum

DECAY = np.float32(0.9)  # m <- 0.9 m + 0.1 * mean reward, as in the original program
_GAIN = np.float32(0.1)
_ZERO = np.float32(0)


def compare_host(command):
    """Compute correct (1,) += predictions[row] == ids[t + 1]: the host does not need the prediction.

    Arguments: correct, predictions (_,), ids (_,), row, t.
    """
    row, t = number(command, 3), number(command, 4)
    correct = vector(command, 0, 1)
    correct[0] += indices(command, 1, row + 1)[row] == indices(command, 2, t + 2)[t + 1]


@on_cuda("void(float32[::1], int32[::1], int32[::1], int64, int64)")
def compare_one(correct, predictions, ids, row, t):
    """Do it by one thread."""
    if predictions[row] == ids[t + 1]:
        correct[0] += np.float32(1)


COMPARE = Kernel("compare", host=compare_host, cuda=by_one_thread(compare_one))


def reward_host(command):
    """Add the reward of one token: correct (1,) += reward (1,). Arguments: correct, reward."""
    correct = vector(command, 0, 1)
    correct[0] += vector(command, 1, 1)[0]


@on_cuda("void(float32[::1], float32[::1])")
def add_reward(correct, reward):
    """Do it by one thread."""
    correct[0] += reward[0]


REWARD = Kernel("reward", host=reward_host, cuda=by_one_thread(add_reward))


def modulate_host(command):
    """End a chunk: compute results (3,) = 0/1 loss, accuracy, modulator.

    Update modulator (1,), and set correct (1,) to 0.

    Arguments: results, correct (sum of rewards), modulator, T.
    """
    results, correct, modulator = vector(command, 0, 3), vector(command, 1, 1), vector(command, 2, 1)
    reward = correct[0] / np.float32(number(command, 3))
    modulator[0] = DECAY * modulator[0] + _GAIN * reward
    results[0] = np.float32(1) - reward
    results[1] = reward
    results[2] = modulator[0]
    correct[0] = np.float32(0)


@on_cuda("void(float32[::1], float32[::1], float32[::1], int64)")
def close_chunk(results, correct, modulator, tokens):
    """Do it by one thread."""
    reward = correct[0] / np.float32(tokens)
    moved = DECAY * modulator[0] + _GAIN * reward
    modulator[0] = moved
    results[0] = np.float32(1) - reward
    results[1] = reward
    results[2] = moved
    correct[0] = np.float32(0)


MODULATE = Kernel("modulate", host=modulate_host, cuda=by_one_thread(close_chunk))


def accumulate_host(command):
    """Add loss and accuracy, times the tokens, to totals (2,), which the host reads after several chunks.

    They start from 0 where `first` is not 0.

    Arguments: totals, results (3,) of `modulate`, T, first.
    """
    totals, results = vector(command, 0, 2), vector(command, 1, 3)
    tokens, first = number(command, 2), number(command, 3)
    for i in range(2):
        before = np.float32(0) if first else totals[i]
        totals[i] = before + results[i] * np.float32(tokens)


@on_cuda("void(float32[::1], float32[::1], int64, int64)")
def add_up(totals, results, tokens, first):
    """Do it by one thread."""
    for i in range(2):
        before = np.float32(0) if first else totals[i]
        totals[i] = before + results[i] * np.float32(tokens)


ACCUMULATE = Kernel("accumulate", host=accumulate_host, cuda=by_one_thread(add_up))


def learned_host(command):
    """End a chunk of learning: compute results (4,), of which the norm is that before clipping.

    They are mean loss, accuracy, learning rate and norm of the gradient.

    Arguments: results, losses (T,), predictions (T,), ids (T + 1,), step_state (12,) of `adamw`, T.
    """
    tokens = number(command, 5)
    results = vector(command, 0, 4)
    losses = vector(command, 1, tokens)
    predictions = indices(command, 2, tokens)
    ids = indices(command, 3, tokens + 1)
    state = vector(command, 4, 12)
    total = _ZERO
    right = 0
    for t in range(tokens):
        total = add_to(total, losses[t])
        right += predictions[t] == ids[t + 1]
    results[0] = total / np.float32(tokens)
    results[1] = (_ZERO + np.float32(right)) / np.float32(tokens)
    results[2] = state[LAST_RATE]
    results[3] = state[NORM]


@on_cuda("void(float32[::1], float32[::1], int32[::1], int32[::1], float32[::1], int64)")
def close_learned(results, losses, predictions, ids, state, tokens):
    """Do it by one block."""
    loss = np.float32(0)
    right = np.float32(0)
    t, threads = uint32(gpu.threadIdx.x), uint32(gpu.blockDim.x)
    while t < tokens:
        loss += losses[t]
        if predictions[t] == ids[uint32(t + 1)]:
            right += np.float32(1)
        t = uint32(t + threads)
    losses_sum = block_sum(loss)
    right_sum = block_sum(right)
    if gpu.threadIdx.x == 0:
        results[0] = losses_sum / np.float32(tokens)
        results[1] = right_sum / np.float32(tokens)
        results[2] = state[LAST_RATE]
        results[3] = state[NORM]


def learned_cuda(device, results, losses, predictions, ids, step_state, tokens):
    arguments = results, losses, predictions, ids, step_state, tokens
    device.start(close_learned, 1, threads_for(tokens), *arguments)


LEARNED = Kernel("learned", host=learned_host, cuda=learned_cuda)
