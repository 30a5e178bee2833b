"""All parameters of the model in one flat buffer, and like it gradients and moments: one kernel updates them all."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from reference_trainer.devices.protocol import Buffer, Device
from reference_trainer.lm.model import ModelConfig, Weights

_ALIGNED: Final = 16  # elements: a cache line of fp32, so that every part begins at one


@dataclass(frozen=True, slots=True)
class Part:
    """A parameter's place in the flat buffer."""

    begin: int
    shape: tuple[int, ...]

    @property
    def end(self) -> int:
        """The element after its last one."""
        return self.begin + prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """The position of each parameter. Matrices come first, since only they decay."""

    parts: dict[str, Part]
    """By name of a field of `Weights`: embedding, layer, readout, decoder, bias, decoder_bias"""
    decayed: int
    """Elements before the first bias."""
    size: int
    """P; between the parts lie a few elements that stay 0."""


def layout(config: ModelConfig) -> Layout:
    """The layout of a model's parameters."""
    width, vocabulary = config.width, config.vocabulary
    matrices = {
        "embedding": (vocabulary, width),
        "layer": (config.layers, width, 2 * width),
        "readout": (width, width),
        "decoder": (width, vocabulary),
    }
    biases = {"bias": (config.layers, 2 * width), "decoder_bias": (vocabulary,)}
    parts, begin, decayed = {}, 0, 0
    for name, shape in (matrices | biases).items():
        parts[name] = Part(begin, shape)
        begin += -(-prod(shape) // _ALIGNED) * _ALIGNED
        decayed = begin if name in matrices else decayed
    return Layout(parts, decayed, begin)


def flatten(weights: Weights, flat_layout: Layout, dtype: np.dtype) -> np.ndarray:
    """The parameters as (P,)."""
    flat = np.zeros(flat_layout.size, dtype)
    for name, part in flat_layout.parts.items():
        flat[part.begin : part.end] = getattr(weights, name).reshape(-1)
    return flat


def unflatten(flat: np.ndarray, flat_layout: Layout) -> Weights:
    """The inverse of `flatten`, in the type of `flat`."""
    parts = flat_layout.parts.items()
    return Weights(**{name: flat[part.begin : part.end].reshape(part.shape) for name, part in parts})


class Views:
    """The parts of a flat buffer (P,) in their own shapes; made once, as a view costs up to 100 us on CUDA."""

    def __init__(self, flat: Buffer, flat_layout: Layout) -> None:
        def view(name: str) -> Buffer:
            return flat.view(flat_layout.parts[name].begin, flat_layout.parts[name].shape)

        layers = flat_layout.parts["layer"]
        size = prod(layers.shape[1:])
        self.embedding = view("embedding")
        self.layers = [flat.view(begin, layers.shape[1:]) for begin in range(layers.begin, layers.end, size)]
        self.readout = view("readout")
        self.decoder = view("decoder")
        self.bias = view("bias")
        self.decoder_bias = view("decoder_bias")


class Parameters:
    """Parameters, gradients and AdamW's moments on a device, each a flat buffer (P,).

    :ivar values: views of the parameters.
    :ivar gradients: views of their gradients.
    """

    def __init__(self, device: Device, config: ModelConfig, weights: Weights) -> None:
        self.layout = layout(config)
        self.flat = device.upload(flatten(weights, self.layout, device.real))
        self.flat_gradients, self.first_moments, self.second_moments = (
            device.zeros((self.layout.size,)) for _ in range(3)
        )
        self.values = Views(self.flat, self.layout)
        self.gradients = Views(self.flat_gradients, self.layout)
