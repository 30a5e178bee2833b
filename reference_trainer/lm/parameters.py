"""All parameters of the model in one flat buffer, and like it gradients and moments: one kernel updates them all."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from reference_trainer.devices.protocol import Buffer, Device
from reference_trainer.lm.model import ModelConfig, Weights

_ALIGNED: Final = 16  # elements: a cache line of fp32, so that every matrix begins at one


@dataclass(frozen=True, slots=True)
class Part:
    """A parameter's place in the flat buffer."""

    begin: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The position of each parameter. Matrices come first, since only they decay."""

    parts: dict[str, Part]
    """By name: embedding, layer 0, layer 1, ..., readout, decoder, bias, decoder bias"""
    decayed: int
    """Elements before the first bias."""
    size: int
    """P; between the parts lie a few elements that stay 0."""


def layout(config: ModelConfig) -> Layout:
    """The layout of a model's parameters."""
    width, vocabulary = config.width, config.vocabulary
    matrices = {
        "embedding": (vocabulary, width),
        **{f"layer {layer}": (width, 2 * width) for layer in range(config.layers)},
        "readout": (width, width),
        "decoder": (width, vocabulary),
    }
    biases = {"bias": (config.layers, 2 * width), "decoder bias": (vocabulary,)}
    parts, begin, decayed = {}, 0, 0
    for name, shape in (matrices | biases).items():
        parts[name] = Part(begin, shape)
        begin += -(-prod(shape) // _ALIGNED) * _ALIGNED
        decayed = begin if name in matrices else decayed
    return Layout(parts, decayed, begin)


def flatten(weights: Weights, flat_layout: Layout, dtype: np.dtype) -> np.ndarray:
    """The parameters as (P,)."""
    flat = np.zeros(flat_layout.size, dtype)
    arrays = {
        "embedding": weights.embedding,
        **{f"layer {index}": matrix for index, matrix in enumerate(weights.layer)},
        "readout": weights.readout,
        "decoder": weights.decoder,
        "bias": weights.bias,
        "decoder bias": weights.decoder_bias,
    }
    for name, part in flat_layout.parts.items():
        flat[part.begin : part.begin + prod(part.shape)] = arrays[name].reshape(-1)
    return flat


def unflatten(flat: np.ndarray, flat_layout: Layout) -> Weights:
    """The inverse of `flatten`, in the type of `flat`."""
    arrays = {
        name: flat[part.begin : part.begin + prod(part.shape)].reshape(part.shape)
        for name, part in flat_layout.parts.items()
    }
    return Weights(
        embedding=arrays["embedding"],
        layer=np.stack([array for name, array in arrays.items() if name.startswith("layer ")]),
        bias=arrays["bias"],
        readout=arrays["readout"],
        decoder=arrays["decoder"],
        decoder_bias=arrays["decoder bias"],
    )


class Views:
    """The parts of a flat buffer (P,) in their own shapes; made once, as a view costs up to 100 us on CUDA."""

    def __init__(self, flat: Buffer, flat_layout: Layout) -> None:
        views = {name: flat.view(part.begin, part.shape) for name, part in flat_layout.parts.items()}
        self.embedding = views["embedding"]
        self.layers = [view for name, view in views.items() if name.startswith("layer ")]
        self.readout = views["readout"]
        self.decoder = views["decoder"]
        self.bias = views["bias"]
        self.decoder_bias = views["decoder bias"]


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
