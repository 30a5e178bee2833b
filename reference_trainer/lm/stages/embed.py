"""Embedding: a row of the table for every token, looked up on the host, or gathered on the device for all at once."""

from __future__ import annotations

import numpy as np

from reference_trainer.kernels import embed
from reference_trainer.lm.model import Weights
from reference_trainer.lm.stages import Stage, Work


class EmbedTokens(Stage):
    """As found: the table is on the host; a token's row goes to a fresh vector, and from there to the device."""

    def __init__(self, work: Work, weights: Weights) -> None:
        super().__init__(work)
        self._table = np.ascontiguousarray(weights.embedding, work.device.real)
        self._rows: list[np.ndarray] = []
        if work.plan.zero_copy:  # the table itself is pinned, and its rows are uploaded from where they are
            pinned = work.device.pinned(self._table.shape)
            pinned[:] = self._table
            self._rows = [pinned[number : number + 1] for number in range(len(pinned))]
        self._inputs: list[int] = []
        self._in_rows = work.plan.recurrence == "chunk"
        if self._in_rows:
            self._memory = work.memory((work.capacity, work.config.width))
        else:
            self._upload = work.uploader((1, work.config.width))

    def begin(self) -> None:
        self._inputs = self._work.ids[:-1].tolist()
        if self._in_rows:
            self._work.x = self._memory()

    def token(self, t: int) -> None:
        work, current = self._work, self._inputs[t]
        row = self._rows[current] if self._rows else np.array(self._table[current : current + 1])
        if self._in_rows:
            work.device.upload_into(work.x, row, t)
        else:
            work.x = self._upload(row)


class EmbedChunk(Stage):
    """With its fix: the table is on the device, and one kernel gathers the rows of all tokens."""

    batched = True

    def __init__(self, work: Work, weights: Weights) -> None:
        super().__init__(work)
        self._table = work.upload(weights.embedding)
        self._memory = work.memory((work.capacity, work.config.width))

    def chunk(self) -> None:
        work, config = self._work, self._work.config
        work.x = self._memory()
        arguments = (work.x, self._table, work.ids_on_device, work.tokens, config.width, config.vocabulary)
        work.device.launch(embed.EMBED, *arguments)
