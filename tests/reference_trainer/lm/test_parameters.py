"""The flat buffer of all parameters."""

from __future__ import annotations

from math import prod

import numpy as np

from reference_trainer.devices.host import HostDevice
from reference_trainer.lm.model import ModelConfig, initial_weights
from reference_trainer.lm.parameters import Parameters, flatten, layout, unflatten

CONFIG = ModelConfig(width=5, layers=3, vocabulary=7)


def test_every_weight_has_its_place() -> None:
    """There and back, and each element of a part is its own: matrices first, nothing overlaps."""
    weights = initial_weights(CONFIG, seed=0)
    positions = layout(CONFIG)
    flat = flatten(weights, positions, np.dtype(np.float64))
    back = unflatten(flat, positions)
    for name in weights.__slots__:
        assert np.array_equal(getattr(back, name), getattr(weights, name)), name
    uses = np.zeros(positions.size, int)
    for name, part in positions.parts.items():
        uses[part.begin : part.begin + prod(part.shape)] += 1
        assert (part.begin < positions.decayed) == ("bias" not in name), name
        assert part.begin % 16 == 0, name
    assert uses.max() == 1
    assert not flat[uses == 0].any()


def test_views_are_of_the_flat_buffers(device: HostDevice) -> None:
    weights = initial_weights(CONFIG, seed=0)
    parameters = Parameters(device, CONFIG, weights)
    for layer in range(CONFIG.layers):
        assert np.array_equal(device.download(parameters.values.layers[layer]), weights.layer[layer])
    device.upload_into(parameters.gradients.readout, np.full((5, 5), 2, np.float32))
    gradients = unflatten(device.download(parameters.flat_gradients), parameters.layout)
    assert gradients.readout.tolist() == [[2.0] * 5] * 5
    assert not gradients.decoder.any()
