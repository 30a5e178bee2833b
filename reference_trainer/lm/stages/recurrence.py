"""The recurrent layers and the readout: a step for every token, or matrix products and one scan a layer for all."""

from __future__ import annotations

import numpy as np

from reference_trainer.kernels import recurrent_step, scan
from reference_trainer.lm.stages import Work


class RecurrenceTokens:
    """As found: a launch a token, after which the readout visits the host (unless the plan is asynchronous)."""

    batched = False

    def __init__(self, work: Work) -> None:
        plan, config, device = work.plan, work.config, work.device
        self._work = work
        self._visits = not plan.asynchronous
        self._for_all = plan.decode == "chunk"
        self._rows_of_x = plan.embed == "chunk"
        self._projected = device.zeros((2 * config.width,))
        self._in_rows = self._for_all and not self._visits
        self._shape = (work.capacity if self._in_rows else 1, config.width)
        self._readout = work.pooled(self._shape)
        self._rest = (
            work.all_layers,
            work.bias,
            work.readout_weight,
            work.state,
            work.modulator,
            self._projected,
            config.width,
            config.layers,
        )
        self._pinned: list[np.ndarray] = []
        if self._visits and plan.zero_copy:  # downloads go to where uploads come from
            self._matrix = device.pinned((work.capacity if self._for_all else 1, config.width))
            self._pinned = [self._matrix[row : row + 1] for row in range(len(self._matrix))]
        self._vectors: list[np.ndarray] = []

    def begin(self) -> None:
        work = self._work
        self._vectors = []
        work.readout = self._readout
        if self._in_rows and self._readout is None:
            work.readout = work.device.empty(self._shape)

    def token(self, t: int) -> None:
        work = self._work
        if self._readout is None and not self._in_rows:
            work.readout = work.device.empty(self._shape)
        rows = (t if self._in_rows else 0, t if self._rows_of_x else 0)
        work.device.launch(recurrent_step.KERNEL, work.readout, work.x, *self._rest, *rows)
        if not self._visits:
            return
        if self._pinned:
            work.visitor = self._pinned[t if self._for_all else 0]
            work.device.download_into(work.visitor, work.readout)
        else:
            work.visitor = work.device.download(work.readout)  # sync 1: the readout visits the host
        if self._for_all:
            self._collect(t)

    def _collect(self, t: int) -> None:
        """Concatenate all readouts for a batched decoder, once the last one has arrived."""
        work = self._work
        if not self._pinned:
            self._vectors.append(work.visitor)
        if t == work.tokens - 1:
            work.visitor = self._matrix[: work.tokens] if self._pinned else np.concatenate(self._vectors)

    def chunk(self) -> None:
        raise NotImplementedError


class RecurrenceChunk:
    """With its fix: the products of all tokens at once, and time inside one kernel a layer."""

    batched = True

    def __init__(self, work: Work) -> None:
        plan = work.plan
        self._work = work
        self._visits = not plan.asynchronous
        self._sizes = (work.capacity, 2 * work.config.width), (work.capacity, work.config.width)
        self._pinned = work.device.pinned(self._sizes[1]) if self._visits and plan.zero_copy else None
        self._pooled = tuple(work.pooled(size) for size in self._sizes)

    def begin(self) -> None:
        projected, readout = self._pooled
        self._projected = projected or self._work.device.empty(self._sizes[0])
        self._work.readout = readout or self._work.device.empty(self._sizes[1])

    def token(self, t: int) -> None:
        raise NotImplementedError

    def chunk(self) -> None:
        work, config, device = self._work, self._work.config, self._work.device
        for layer, weight in enumerate(work.layers):
            device.matmul(self._projected, work.x, weight, work.tokens)
            carried = (work.bias, work.state, work.modulator)
            sizes = (work.tokens, config.width, layer, config.layers)
            device.launch(scan.KERNEL, work.x, self._projected, *carried, *sizes)
        device.matmul(work.readout, work.x, work.readout_weight, work.tokens)
        if self._visits:  # one sync for all readouts, where as found there was one for each
            shape = (work.tokens, config.width)
            work.visitor = np.empty(shape, device.real) if self._pinned is None else self._pinned[: work.tokens]
            device.download_into(work.visitor, work.readout)
