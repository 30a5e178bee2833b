"""The recurrent layers and the readout: a step for every token, or matrix products and one scan a layer for all."""

from __future__ import annotations

import numpy as np

from reference_trainer.kernels import recurrent_step, scan
from reference_trainer.lm.stages import Stage, Work


class RecurrenceTokens(Stage):
    """As found: a launch a token, after which the readout visits the host (unless the plan is asynchronous)."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        plan, config, device = work.plan, work.config, work.device
        self._visits = not plan.asynchronous
        self._for_all = plan.decode == "chunk"
        self._x_in_rows = plan.embed == "chunk"
        self._in_rows = self._for_all and not self._visits
        self._memory = work.memory((work.capacity if self._in_rows else 1, config.width))
        self._rest = (
            work.all_layers,
            work.bias,
            work.readout_weight,
            work.state,
            work.modulator,
            device.zeros((2 * config.width,)),
            config.width,
            config.layers,
        )
        self._pinned: list[np.ndarray] = []
        if self._visits and plan.zero_copy:  # downloads go to where uploads come from
            self._matrix = device.pinned((work.capacity if self._for_all else 1, config.width))
            self._pinned = [self._matrix[row : row + 1] for row in range(len(self._matrix))]
        self._vectors: list[np.ndarray] = []

    def begin(self) -> None:
        self._vectors = []
        if self._in_rows:
            self._work.readout = self._memory()

    def token(self, t: int) -> None:
        work = self._work
        if not self._in_rows:
            work.readout = self._memory()
        rows = (t if self._in_rows else 0, t if self._x_in_rows else 0)
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


class RecurrenceChunk(Stage):
    """With its fix: the products of all tokens at once, and the loop over time inside one kernel a layer."""

    batched = True

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        width = work.config.width
        self._projected = work.memory((work.capacity, 2 * width))
        self._readout = work.memory((work.capacity, width))
        self._visits = not work.plan.asynchronous
        if self._visits:
            self._visitor = work.host_memory((work.capacity, width))

    def chunk(self) -> None:
        work, config, device = self._work, self._work.config, self._work.device
        projected, work.readout = self._projected(), self._readout()
        for layer, weight in enumerate(work.layers):
            device.matmul(projected, work.x, weight, work.tokens)
            carried = (work.bias, work.state, work.modulator)
            sizes = (work.tokens, config.width, layer, config.layers)
            device.launch(scan.SCAN, work.x, projected, *carried, *sizes)
        device.matmul(work.readout, work.x, work.readout_weight, work.tokens)
        if self._visits:  # one sync for all readouts, where as found there was one for each
            work.visitor = self._visitor()[: work.tokens]
            device.download_into(work.visitor, work.readout)
