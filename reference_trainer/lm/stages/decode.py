"""The decoder: logits over the vocabulary and the likeliest token, for every token by itself or for all at once."""

from __future__ import annotations

import numpy as np

from reference_trainer.kernels import decode_token, predict
from reference_trainer.lm.stages import Stage, Work


class DecodeTokens(Stage):
    """As found: the readout comes (back) to the device, and a launch a token finds the prediction."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        plan, config = work.plan, work.config
        self._visited = not plan.asynchronous
        self._in_rows = plan.recurrence == "chunk"
        self._fetches = not plan.asynchronous and plan.loss == "host"
        """Each prediction goes to the host; else they stay on the device until the end of the chunk."""
        self._upload = work.uploader((1, config.width)) if self._visited else None
        self._memory = work.memory((1,), "int32") if self._fetches else work.predictions()
        self._logits = work.device.zeros((config.vocabulary,))
        self._rest = (work.decoder, work.decoder_bias, self._logits, config.width, config.vocabulary)
        self._pinned = work.device.pinned((1,), "int32") if self._fetches and plan.zero_copy else None
        self._all: np.ndarray = np.zeros((0, 0))

    def begin(self) -> None:
        work = self._work
        work.predicted = []
        if not self._fetches:
            work.prediction = self._memory()
        self._all = work.visitor  # of a batched recurrence: all readouts are here already

    def token(self, t: int) -> None:
        work = self._work
        readout, readout_row = work.readout, t if self._in_rows else 0
        if self._upload:
            readout = self._upload(self._all[t : t + 1] if self._in_rows else work.visitor)  # ... and goes back
            readout_row = 0
        if self._fetches:
            work.prediction = self._memory()
        else:
            work.prediction_row = t
        rows = (work.prediction_row, readout_row)
        work.device.launch(decode_token.KERNEL, work.prediction, readout, *self._rest, *rows)
        if not self._fetches:
            return
        if self._pinned is None:
            prediction = int(work.device.download(work.prediction)[0])  # sync 2: what .item() does
        else:
            work.device.download_into(self._pinned, work.prediction)
            prediction = int(self._pinned[0])
        work.predicted.append(prediction)  # type: ignore[union-attr]


class DecodeChunk(Stage):
    """With its fix: one product for all logits, one kernel for all predictions."""

    batched = True

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._counts = work.plan.loss == "device"
        self._logits = work.memory((work.capacity, work.config.vocabulary))
        self._prediction = work.predictions()
        self._upload = None if work.plan.asynchronous else work.uploader((work.capacity, work.config.width))

    def chunk(self) -> None:
        work, device, sizes = self._work, self._work.device, (self._work.tokens, self._work.config.vocabulary)
        logits, work.prediction = self._logits(), self._prediction()
        readouts = self._upload(work.visitor) if self._upload else work.readout
        device.matmul(logits, readouts, work.decoder, work.tokens)
        if self._counts:
            arguments = (work.prediction, work.correct, logits, work.decoder_bias, work.ids_on_device)
            device.launch(predict.SCORE, *arguments, *sizes)
        else:
            device.launch(predict.PREDICT, work.prediction, logits, work.decoder_bias, *sizes)
