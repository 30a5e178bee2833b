"""The language model's shape and weights: embedding, leaky-integrator layers, readout, vocabulary logits.

For a token with embedding x (D,), each layer computes, with state h (D,) carried over tokens and chunks:

    gate, value = x W + b            W (D, 2D)
    a  = sigmoid(gate + m)           m: the neuromodulator, one number for the whole chunk
    h <- a h + (1 - a) value         a diagonal linear recurrence: given x, time is a linear scan
    x <- x + h                       residual

and then readout = x R (D, D) and logits = readout U + c, U (D, V). fp32 throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from reference_trainer.errors import TrainerError


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model's size."""

    width: int
    """D"""
    layers: int
    vocabulary: int
    """V"""


PRESETS: dict[str, ModelConfig] = {
    # kernels short beside the cost of a call, as they are on a GPU
    "tiny": ModelConfig(width=32, layers=2, vocabulary=256),
    "small": ModelConfig(width=256, layers=2, vocabulary=4096),
    # as found at most a fifth of a data-center GPU's time, fixed all of it: the width of the widest margin by
    # `lm.roofline`, a model that no measurement has confirmed yet
    "gpu": ModelConfig(width=640, layers=4, vocabulary=4096),
    # 4096 x 4096 products over 3,000 tokens: even as found, a GPU is busy for most of the time with reading the weights
    "base": ModelConfig(width=4096, layers=8, vocabulary=4096),
}


def preset(name: str) -> ModelConfig:
    """The model of that name; a TrainerError names the known ones."""
    if name not in PRESETS:
        raise TrainerError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights as fp32 host arrays."""

    embedding: np.ndarray
    """(V, D)"""
    layer: np.ndarray
    """(layers, D, 2D): gate and value side by side"""
    bias: np.ndarray
    """(layers, 2D)"""
    readout: np.ndarray
    """(D, D)"""
    decoder: np.ndarray
    """(D, V)"""
    decoder_bias: np.ndarray
    """(V,)"""


def initial_weights(config: ModelConfig, seed: int) -> Weights:
    """Gaussian weights of variance 1 / fan-in; gate biases such that layers remember 2 to 50 tokens.

    Biases are random too: a program that leaves one out gives other results.
    """
    random = np.random.default_rng(seed)
    width, vocabulary = config.width, config.vocabulary

    def normal(*shape: int, fan_in: int) -> np.ndarray:
        return (random.standard_normal(shape, np.float32) / np.sqrt(np.float32(fan_in))).astype(np.float32)

    bias = np.zeros((config.layers, 2 * width), np.float32)
    bias[:, :width] = np.log(np.geomspace(2, 50, width) - 1)  # sigmoid(log(n - 1)) = 1 - 1 / n
    weights = Weights(
        embedding=normal(vocabulary, width, fan_in=1),
        layer=normal(config.layers, width, 2 * width, fan_in=width),
        bias=bias,
        readout=normal(width, width, fan_in=width),
        decoder=normal(width, vocabulary, fan_in=width),
        decoder_bias=normal(vocabulary, fan_in=width),
    )
    bias[:, width:] = normal(config.layers, width, fan_in=width)
    return weights


def initial_weights_for_learning(config: ModelConfig, seed: int) -> Weights:
    """`initial_weights` from which more is learned in a short time (docs/log.md).

    Smaller embeddings change faster beside their size, half of the layers' units begin with a memory of less than five
    tokens, and all other biases begin at 0.
    """
    weights = initial_weights(config, seed)
    bias, decoder_bias = np.zeros_like(weights.bias), np.zeros_like(weights.decoder_bias)
    bias[:, : config.width] = np.log(np.geomspace(1.1, 20, config.width) - 1)
    embedding = np.float32(0.3) * weights.embedding
    return replace(weights, embedding=embedding, bias=bias, decoder_bias=decoder_bias)
