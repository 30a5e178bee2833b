"""The decoder: logits over the vocabulary and the likeliest token, for every token by itself or for all at once."""

from __future__ import annotations

import numpy as np

from reference_trainer.kernels import decode_token, predict, score
from reference_trainer.lm.stages import Work


class DecodeTokens:
    """As found: the readout comes (back) to the device, and a launch a token finds the prediction."""

    batched = False

    def __init__(self, work: Work) -> None:
        plan, config = work.plan, work.config
        self._work = work
        self._visited = not plan.asynchronous
        self._rows = plan.recurrence == "chunk"
        self._fetches = not plan.asynchronous and plan.loss == "host"
        self._kept = not self._fetches  # on the device, for the end of the chunk
        self._shape = (work.capacity if self._kept else 1,)
        self._again = work.pooled((1, config.width)) if self._visited else None
        self._prediction = work.pooled(self._shape, "int32")
        logits = work.device.zeros((config.vocabulary,))
        self._rest = (work.decoder, work.decoder_bias, logits, config.width, config.vocabulary)
        self._pinned = work.device.pinned((1,), "int32") if self._fetches and plan.zero_copy else None
        self._all: np.ndarray = np.zeros((0, 0))

    def begin(self) -> None:
        work = self._work
        work.predicted = []
        work.prediction = self._prediction
        if self._kept and self._prediction is None:
            work.prediction = work.device.empty(self._shape, "int32")
        self._all = work.visitor  # of a batched recurrence: all readouts are here already

    def token(self, t: int) -> None:
        work = self._work
        readout, readout_row = work.readout, t if self._rows else 0
        if self._visited:
            visitor = self._all[t : t + 1] if self._rows else work.visitor
            readout, readout_row = self._again, 0
            if readout is None:
                readout = work.device.upload(visitor)  # ... and goes back
            else:
                work.device.upload_into(readout, visitor)
        if self._kept:
            work.prediction_row = t
        elif self._prediction is None:
            work.prediction = work.device.empty(self._shape, "int32")
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

    def chunk(self) -> None:
        raise NotImplementedError


class DecodeChunk:
    """With its fix: one product for all logits, one kernel for all predictions."""

    batched = True

    def __init__(self, work: Work) -> None:
        self._work = work
        self._visited = not work.plan.asynchronous
        self._counts = work.plan.loss == "device"
        self._size = (work.capacity, work.config.vocabulary)
        self._pooled = work.pooled(self._size), work.pooled((work.capacity,), "int32")
        self._again = work.pooled((work.capacity, work.config.width)) if self._visited else None

    def begin(self) -> None:
        work = self._work
        logits, prediction = self._pooled
        self._logits = logits or work.device.empty(self._size)
        work.prediction = prediction or work.device.empty((work.capacity,), "int32")

    def token(self, t: int) -> None:
        raise NotImplementedError

    def chunk(self) -> None:
        work, config, device = self._work, self._work.config, self._work.device
        readouts = work.readout
        if self._visited and self._again is None:
            readouts = device.upload(work.visitor)
        elif self._visited:
            readouts = self._again
            device.upload_into(readouts, work.visitor)
        device.matmul(self._logits, readouts, work.decoder, work.tokens)
        sizes = (work.tokens, config.vocabulary)
        if self._counts:
            arguments = (work.prediction, work.correct, self._logits, work.decoder_bias, work.ids_on_device)
            device.launch(score.KERNEL, *arguments, *sizes)
        else:
            device.launch(predict.KERNEL, work.prediction, self._logits, work.decoder_bias, *sizes)
