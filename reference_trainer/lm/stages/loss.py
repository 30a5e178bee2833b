"""The 0/1 loss and the reward: compared on the host, token by token or for a chunk, or where the predictions are."""

from __future__ import annotations

import numpy as np

from profiler import marks
from reference_trainer.kernels import compare, reward
from reference_trainer.lm.stages import Work


class LossTokens:
    """As found: the host compares each prediction, and the reward goes to the device."""

    batched = False

    def __init__(self, work: Work) -> None:
        self._work = work
        self._targets: list[int] = []
        self._earned = work.pooled((1,))
        self._rewards: list[np.ndarray] = []
        if work.plan.zero_copy:
            pinned = work.device.pinned((2,))
            pinned[:] = (0, 1)
            self._rewards = [pinned[:1], pinned[1:]]

    def begin(self) -> None:
        self._targets = self._work.ids[1:].tolist()

    def right(self) -> int:
        """How many predictions of the chunk were right."""
        with marks.region("loss"):
            return self._count()

    def _count(self) -> int:
        return sum(prediction == target for prediction, target in zip(self._work.predicted, self._targets, strict=True))

    def token(self, t: int) -> None:
        work = self._work
        right = work.predicted[t] == self._targets[t]
        earned = self._rewards[right] if self._rewards else np.array([1.0 if right else 0.0], work.device.real)
        if self._earned is None:
            work.device.launch(reward.KERNEL, work.correct, work.device.upload(earned))
        else:
            work.device.upload_into(self._earned, earned)
            work.device.launch(reward.KERNEL, work.correct, self._earned)

    def chunk(self) -> None:
        raise NotImplementedError


class LossChunk:
    """Predictions of the whole chunk come to the host in one copy, and the sum of their rewards goes back."""

    batched = True

    def __init__(self, work: Work) -> None:
        self._work = work
        self._pinned = work.device.pinned((work.capacity,), "int32") if work.plan.zero_copy else None
        self._earned = work.pooled((1,))

    def begin(self) -> None:
        self._right = 0

    def right(self) -> int:
        """How many predictions of the chunk were right."""
        return self._right

    def token(self, t: int) -> None:
        raise NotImplementedError

    def chunk(self) -> None:
        work = self._work
        predicted = np.empty(work.tokens, np.int32) if self._pinned is None else self._pinned[: work.tokens]
        work.device.download_into(predicted, work.prediction)
        work.predicted = predicted
        self._right = int(np.count_nonzero(predicted == work.ids[1:]))
        earned = np.array([self._right], work.device.real)
        buffer = self._earned
        if buffer is None:
            buffer = work.device.upload(earned)
        else:
            work.device.upload_into(buffer, earned)
        work.device.launch(reward.KERNEL, work.correct, buffer)


class LossOnDevice:
    """With its fix: every prediction is compared where it is; a batched decoder has done that already."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.batched = work.plan.decode == "chunk"

    def begin(self) -> None:
        """Nothing to prepare."""

    def right(self) -> None:
        """The host does not know."""

    def token(self, t: int) -> None:
        work = self._work
        rows = (work.prediction_row, t)
        work.device.launch(compare.KERNEL, work.correct, work.prediction, work.ids_on_device, *rows)

    def chunk(self) -> None:
        """The decoder's kernel counts."""
