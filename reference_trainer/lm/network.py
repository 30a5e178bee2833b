"""The model forward and backward on the device: a chunk's losses, and the gradients of all parameters.

All that the backward pass reads is kept, but for the logits: of these and their gradient there is at most a tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reference_trainer.devices.protocol import Buffer, Device
from reference_trainer.kernels import cross_entropy, embed, scan, scan_backward
from reference_trainer.kernels.matmul import ACCUMULATE, TRANSPOSE_A, TRANSPOSE_B
from reference_trainer.lm.model import ModelConfig
from reference_trainer.lm.parameters import Parameters

TILE: Final = {"host": 512, "cuda": 4096}
"""Tokens whose logits are in memory together. On the host device the quickest, by a little (docs/log.md): with fewer
the decoder is read too often, more leave the caches. On CUDA a whole chunk of usual length, for large products."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """A stretch of a chunk's tokens whose logits are in memory together."""

    begin: int
    readouts: Buffer
    d_readouts: Buffer


class Network:
    """Forward, losses and backward over chunks of at most `capacity` predictions.

    :ivar losses: (capacity,) -log p of each token's successor.
    :ivar predictions: (capacity,) the most probable successors.
    """

    def __init__(
        self, device: Device, config: ModelConfig, parameters: Parameters, capacity: int, *, tile: int = 0
    ) -> None:
        self._device = device
        self._config = config
        self._parameters = parameters
        width, layers = config.width, config.layers
        self._inputs = [device.empty((capacity, width)) for _ in range(layers + 1)]
        self._projected = [device.empty((capacity, 2 * width)) for _ in range(layers)]
        self._hidden = [device.empty((capacity, width)) for _ in range(layers)]
        self._saved_state = device.empty((layers, width))
        self._readouts = device.empty((capacity, width))
        self._d_readouts = device.empty((capacity, width))
        self._d_inputs = device.empty((capacity, width))
        self._d_projected = device.empty((capacity, 2 * width))
        tile = min(tile or TILE[device.kind], capacity)
        self._logits = device.empty((tile, self._config.vocabulary))
        self._tiles = [
            _Tile(begin, self._readouts.rows(begin, end), self._d_readouts.rows(begin, end))
            for begin in range(0, capacity, tile)
            for end in (min(begin + tile, capacity),)
        ]
        self.losses = device.empty((capacity,))
        self.predictions = device.empty((capacity,), "int32")

    def forward(self, ids: Buffer, tokens: int, state: Buffer) -> None:
        """Embedding, layers and readouts; `state` is moved on."""
        device, config, values = self._device, self._config, self._parameters.values
        device.launch(embed.EMBED, self._inputs[0], values.embedding, ids, tokens, config.width, config.vocabulary)
        for layer, weight in enumerate(values.layers):
            device.matmul(self._projected[layer], self._inputs[layer], weight, tokens)
            device.launch(
                scan.KEEPING,
                self._inputs[layer + 1],
                self._inputs[layer],
                self._projected[layer],
                values.bias,
                state,
                self._saved_state,
                self._hidden[layer],
                tokens,
                config.width,
                layer,
                config.layers,
            )
        device.matmul(self._readouts, self._inputs[-1], values.readout, tokens)

    def decode(self, ids: Buffer, tokens: int, *, learn: bool) -> None:
        """Logits and losses, tile by tile; to learn, the gradients of the decoder and of the readouts too."""
        device, values, gradients = self._device, self._parameters.values, self._parameters.gradients
        for tile in self._tiles:
            rows = min(tokens, tile.begin + self._logits.shape[0]) - tile.begin
            if rows <= 0:
                break
            device.matmul(self._logits, tile.readouts, values.decoder, rows)
            device.launch(
                cross_entropy.KERNEL,
                self._logits,
                values.decoder_bias,
                gradients.decoder_bias,
                self.losses,
                self.predictions,
                ids,
                tile.begin,
                rows,
                tokens,
                self._config.vocabulary,
            )
            if learn:
                device.matmul(tile.d_readouts, self._logits, values.decoder, rows, TRANSPOSE_B)
                flags = TRANSPOSE_A | (ACCUMULATE if tile.begin else 0)
                device.matmul(gradients.decoder, tile.readouts, self._logits, rows, flags)

    def backward(self, ids: Buffer, tokens: int) -> None:
        """Compute the gradients of everything below the readouts from those of the readouts."""
        device, config = self._device, self._config
        values, gradients, d_inputs = self._parameters.values, self._parameters.gradients, self._d_inputs
        device.matmul(gradients.readout, self._inputs[-1], self._d_readouts, tokens, TRANSPOSE_A)
        device.matmul(d_inputs, self._d_readouts, values.readout, tokens, TRANSPOSE_B)
        for layer in reversed(range(config.layers)):
            device.launch(
                scan_backward.KERNEL,
                self._d_projected,
                d_inputs,
                self._projected[layer],
                values.bias,
                self._hidden[layer],
                self._saved_state,
                gradients.bias,
                tokens,
                config.width,
                layer,
                config.layers,
            )
            device.matmul(gradients.layers[layer], self._inputs[layer], self._d_projected, tokens, TRANSPOSE_A)
            device.matmul(d_inputs, self._d_projected, values.layers[layer], tokens, TRANSPOSE_B | ACCUMULATE)
        sizes = tokens, config.width, config.vocabulary
        device.launch(embed.BACKWARD, gradients.embedding, d_inputs, ids, *sizes)
