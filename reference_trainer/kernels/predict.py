"""Computes the predictions of a chunk from its logits, and counts the correct ones where the device compares them."""

from __future__ import annotations

import numpy as np

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import indices, matrix, number, vector
from reference_trainer.kernels.on_cuda import gpu, on_cuda, threads_for
from reference_trainer.kernels.reductions import argmax_of_sum, block_argmax


def predict_host(command):
    """Compute predictions (T,) = argmax(logits + bias), the first of equal ones.

    Arguments: predictions, logits (T, V), bias (V,), T, V.
    """
    tokens, vocabulary = number(command, 3), number(command, 4)
    predictions = indices(command, 0, tokens)
    logits = matrix(command, 1, tokens, vocabulary)
    bias = vector(command, 2, vocabulary)
    for t in range(tokens):
        predictions[t] = argmax_of_sum(logits[t], bias)


@on_cuda("void(int32[::1], float32[:, ::1], float32[::1], int64)")
def predict_rows(predictions, logits, bias, vocabulary):
    """Do one token per block."""
    t = gpu.blockIdx.x
    first = block_argmax(logits[t], bias, vocabulary)
    if gpu.threadIdx.x == 0:
        predictions[t] = first


def predict_cuda(device, predictions, logits, bias, tokens, vocabulary):
    device.start(predict_rows, tokens, threads_for(vocabulary), predictions, logits, bias, vocabulary)


PREDICT = Kernel("predict", host=predict_host, cuda=predict_cuda, fastmath={"nnan", "nsz"})


def score_host(command):
    """Compute predictions (T,) = argmax(logits + bias), and add the number that equal ids[t + 1] to correct (1,).

    Arguments: predictions, correct, logits (T, V), bias (V,), ids (T + 1,), T, V. The first of equal logits wins.
    """
    tokens, vocabulary = number(command, 5), number(command, 6)
    predictions = indices(command, 0, tokens)
    correct = vector(command, 1, 1)
    logits = matrix(command, 2, tokens, vocabulary)
    bias = vector(command, 3, vocabulary)
    ids = indices(command, 4, tokens + 1)
    right = 0
    for t in range(tokens):
        first = argmax_of_sum(logits[t], bias)
        predictions[t] = first
        right += ids[t + 1] == first
    correct[0] += right


@on_cuda("void(int32[::1], float32[::1], float32[:, ::1], float32[::1], int32[::1], int64)")
def score_rows(predictions, correct, logits, bias, ids, vocabulary):
    """Do one token per block. Adding ones in fp32 is exact in any order, up to 2^24 of them."""
    t = gpu.blockIdx.x
    first = block_argmax(logits[t], bias, vocabulary)
    if gpu.threadIdx.x == 0:
        predictions[t] = first
        if ids[t + 1] == first:
            gpu.atomic.add(correct, 0, np.float32(1))


def score_cuda(device, predictions, correct, logits, bias, ids, tokens, vocabulary):
    threads = threads_for(vocabulary)
    device.start(score_rows, tokens, threads, predictions, correct, logits, bias, ids, vocabulary)


SCORE = Kernel("score", host=score_host, cuda=score_cuda, fastmath={"nnan", "nsz"})
