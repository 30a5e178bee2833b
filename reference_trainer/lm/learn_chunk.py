"""The learning chunk: cross-entropy, backpropagation through the recurrence, AdamW; all of it on the device.

A step is one chunk. Gradients reach back to its beginning; the state is carried on. Per step one upload, one download
and one sync, nothing allocated, and never more logits than those of a tile of tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import prod
from typing import Any, Final

import numpy as np

from profiler import marks
from reference_trainer.devices.protocol import Buffer, Device
from reference_trainer.kernels import adamw, grad_norm, rewards
from reference_trainer.lm.model import ModelConfig, Weights
from reference_trainer.lm.network import Network
from reference_trainer.lm.optimizer import Optimizer
from reference_trainer.lm.parameters import Parameters, unflatten
from reference_trainer.lm.replay import Replay
from reference_trainer.lm.result import IN_FLIGHT, Result

RESULTS: Final = 4  # what `kernels.rewards.LEARNED` leaves


class LearnChunk:
    """Learns from chunks of at most `capacity` predictions; see `reference_trainer.lm.result.Forward`.

    :param optimizer: settings of AdamW.
    :param tile: tokens whose logits are in memory together; 0: as suits the device.
    :param graph: replay the launches of a step as a graph.
    """

    def __init__(
        self,
        device: Device,
        config: ModelConfig,
        weights: Weights,
        capacity: int,
        *,
        optimizer: Optimizer | None = None,
        tile: int = 0,
        graph: bool = False,
    ) -> None:
        self._device = device
        self._replay = Replay(device, capacity if graph else 0)
        self._capacity = capacity
        self._parameters = Parameters(device, config, weights)
        self._step_state = device.upload((optimizer or Optimizer()).step_state(device.real))
        self._state, self._evaluation_state = (device.zeros((config.layers, config.width)) for _ in range(2))
        self._network = Network(device, config, self._parameters, capacity, tile=tile)
        self._norm = device.zeros((1,))
        self._results = device.zeros((RESULTS,))
        # Two of what the host shares with the device: while it reads or writes one, the device has the other.
        slots = range(IN_FLIGHT)
        self._ids = [device.empty((capacity + 1,), "int32") for _ in slots]
        self._staged = [device.pinned((capacity + 1,), "int32") for _ in slots]
        self._fetched = [device.pinned((RESULTS,)) for _ in slots]
        self._submitted = 0
        self._flying: deque[tuple[Any, np.ndarray, int]] = deque()

    # ------------------------------------------------------------ a step

    def submit(self, ids: np.ndarray, number: int = 0) -> None:
        """Put a step on the chunk `ids` (T + 1,) into the device's queue and return."""
        staged = self._room(len(ids))
        staged[:] = ids
        self._submit(staged)

    def train_step_zero_copy(self, input_ids: np.ndarray, target_ids: np.ndarray) -> tuple[float, float]:
        """Learn from a chunk while none is in flight; return its loss and its accuracy.

        The ids are written once, into the pinned memory that the device reads. No list or other array is made of them.

        :param input_ids: (T,) of any integer type, such as a view of mapped shards.
        :param target_ids: (T,): the token after each input.
        """
        if self._flying:
            raise RuntimeError("chunks are in flight: collect them first")
        staged = self._room(len(input_ids) + 1)
        staged[:-1], staged[-1:] = input_ids, target_ids[-1:]
        if not np.array_equal(staged[1:], target_ids):
            raise ValueError("a target is not the input after it")
        self._submit(staged)
        result = self.collect()
        assert result.loss is not None
        assert result.accuracy is not None
        return result.loss, result.accuracy

    def _room(self, length: int) -> np.ndarray:
        """Pinned memory for so many ids of the next chunk."""
        if len(self._flying) == IN_FLIGHT:
            raise RuntimeError(f"{IN_FLIGHT} chunks are in flight already: collect one")
        return self._staged[self._submitted % IN_FLIGHT][: self._length(length) + 1]

    def _submit(self, staged: np.ndarray) -> None:
        device, tokens, slot = self._device, len(staged) - 1, self._submitted % IN_FLIGHT
        on_device, fetched = self._ids[slot], self._fetched[slot]
        device.prefetch_into(on_device, staged)
        self._replay.run(slot, tokens, lambda: self._launch(on_device, tokens))
        self._flying.append((device.fetch_into(fetched, self._results), fetched, tokens))
        self._submitted += 1

    def _launch(self, ids: Buffer, tokens: int) -> None:
        """Launch all kernels of a step."""
        with marks.region("forward"):
            self._network.forward(ids, tokens, self._state)
        with marks.region("backward"):
            self._network.decode(ids, tokens, learn=True)
            self._network.backward(ids, tokens)
        with marks.region("optimizer"):
            self._update()
            self._close(ids, tokens)

    def collect(self) -> Result:
        """Wait for the oldest chunk submitted: the one sync, after which its loss and accuracy are here."""
        ticket, fetched, tokens = self._flying.popleft()
        self._device.wait(ticket)
        loss, accuracy, rate, norm = map(float, fetched)
        return Result(tokens, loss, accuracy, tokens, {"learning_rate": rate, "gradient_norm": norm})

    def flush(self) -> Result | None:
        """Every chunk gave its metrics back itself."""
        return None

    def _length(self, ids: int) -> int:
        """Predictions of a chunk of so many ids; no kernel would notice that they are too many."""
        if not 1 <= ids - 1 <= self._capacity:
            raise ValueError(f"{ids - 1} predictions in a chunk, there must be 1 to {self._capacity}")
        return ids - 1

    def _update(self) -> None:
        """Clip the gradients and take a step."""
        device, parameters = self._device, self._parameters
        size, decayed = parameters.layout.size, parameters.layout.decayed
        device.launch(grad_norm.KERNEL, self._norm, parameters.flat_gradients, size)
        device.launch(
            adamw.KERNEL,
            parameters.flat,
            parameters.flat_gradients,
            parameters.first_moments,
            parameters.second_moments,
            self._norm,
            self._step_state,
            size,
            decayed,
        )

    def _close(self, ids: Buffer, tokens: int) -> None:
        self._device.launch(
            rewards.LEARNED,
            self._results,
            self._network.losses,
            self._network.predictions,
            ids,
            self._step_state,
            tokens,
        )

    # ------------------------------------------------------------ beside the steps

    def evaluate(self, chunks: Iterable[np.ndarray]) -> Result:
        """Loss and accuracy over `chunks` one after the other, from a state of zero; nothing is learned."""
        device, tokens, loss, accuracy = self._device, 0, 0.0, 0.0
        device.upload_into(self._evaluation_state, np.zeros(self._evaluation_state.shape, device.real))
        for ids in chunks:
            length = self._length(len(ids))
            on_device = device.upload(ids)
            self._network.forward(on_device, length, self._evaluation_state)
            self._network.decode(on_device, length, learn=False)
            self._close(on_device, length)
            results = device.download(self._results)
            loss += float(results[0]) * length
            accuracy += float(results[1]) * length
            tokens += length
        return Result(tokens, loss / tokens, accuracy / tokens, tokens)

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(prod(part.shape) for part in self._parameters.layout.parts.values())

    def weights(self) -> Weights:
        """The weights as they are now: a download."""
        return unflatten(self._device.download(self._parameters.flat), self._parameters.layout)

    def everything(self) -> dict[str, Buffer]:
        """All that the next steps depend on, by name: what a checkpoint holds. Read it while no chunk is in flight."""
        parameters = self._parameters
        return {
            "parameters": parameters.flat,
            "first_moments": parameters.first_moments,
            "second_moments": parameters.second_moments,
            "step_state": self._step_state,
            "state": self._state,
        }
