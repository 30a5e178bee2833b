"""Embedding: a row of the table for every token, looked up on the host, or gathered on the device for all at once."""

from __future__ import annotations

import numpy as np

from reference_trainer.kernels import embed
from reference_trainer.lm.model import Weights
from reference_trainer.lm.stages import Work


class EmbedTokens:
    """As found: the table lies on the host; a token's row goes to a fresh vector, and from there to the device."""

    batched = False

    def __init__(self, work: Work, weights: Weights) -> None:
        self._work = work
        self._table = np.ascontiguousarray(weights.embedding, work.device.real)
        self._rows: list[np.ndarray] = []
        if work.plan.zero_copy:  # the table itself is pinned, and its rows are uploaded from where they are
            pinned = work.device.pinned(self._table.shape)
            pinned[:] = self._table
            self._rows = [pinned[number : number + 1] for number in range(len(pinned))]
        self._inputs: list[int] = []
        self._rows_of_x = work.plan.recurrence == "chunk"
        self._x = work.pooled((work.capacity if self._rows_of_x else 1, work.config.width))

    def begin(self) -> None:
        work = self._work
        self._inputs = work.ids[:-1].tolist()
        work.x = self._x
        if self._rows_of_x and self._x is None:
            work.x = work.device.empty((work.capacity, work.config.width))

    def token(self, t: int) -> None:
        work, current = self._work, self._inputs[t]
        row = self._rows[current] if self._rows else np.array(self._table[current : current + 1])
        if self._rows_of_x:
            work.device.upload_into(work.x, row, t)
        elif self._x is None:
            work.x = work.device.upload(row)
        else:
            work.device.upload_into(self._x, row)

    def chunk(self) -> None:
        raise NotImplementedError


class EmbedChunk:
    """With its fix: the table lies on the device, and one kernel gathers the rows of all tokens."""

    batched = True

    def __init__(self, work: Work, weights: Weights) -> None:
        self._work = work
        self._table = work.upload(weights.embedding)
        self._x = work.pooled((work.capacity, work.config.width))

    def begin(self) -> None:
        work = self._work
        work.x = self._x or work.device.empty((work.capacity, work.config.width))

    def token(self, t: int) -> None:
        raise NotImplementedError

    def chunk(self) -> None:
        work, config = self._work, self._work.config
        arguments = (work.x, self._table, work.ids_on_device, work.tokens, config.width, config.vocabulary)
        work.device.launch(embed.KERNEL, *arguments)
