"""The 0/1 loss and the reward: compared on the host, token by token or for a chunk, or where the predictions are."""

from __future__ import annotations

import numpy as np

from profiler import marks
from reference_trainer.kernels import rewards
from reference_trainer.lm.stages import Stage, Work


class LossTokens(Stage):
    """As found: the host compares each prediction, and the reward goes to the device."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._targets: list[int] = []
        self._upload = work.uploader((1,))
        self._rewards: list[np.ndarray] = []
        if work.plan.zero_copy:
            pinned = work.device.pinned((2,))
            pinned[:] = (0, 1)
            self._rewards = [pinned[:1], pinned[1:]]

    def begin(self) -> None:
        self._targets = self._work.ids[1:].tolist()

    def right(self) -> int:
        """The number of right predictions of the chunk."""
        predicted = self._work.predicted
        with marks.region("loss"):
            return sum(prediction == target for prediction, target in zip(predicted, self._targets, strict=True))

    def token(self, t: int) -> None:
        work = self._work
        right = work.predicted[t] == self._targets[t]
        earned = self._rewards[right] if self._rewards else np.array([1.0 if right else 0.0], work.device.real)
        work.device.launch(rewards.REWARD, work.correct, self._upload(earned))


class LossChunk(Stage):
    """Predictions of the whole chunk come to the host in one copy, and the sum of their rewards goes back."""

    batched = True

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._predicted = work.host_memory((work.capacity,), "int32")
        self._upload = work.uploader((1,))
        self._right = 0

    def right(self) -> int:
        """The number of right predictions of the chunk."""
        return self._right

    def chunk(self) -> None:
        work = self._work
        work.predicted = predicted = self._predicted()[: work.tokens]
        work.device.download_into(predicted, work.prediction)
        self._right = int(np.count_nonzero(predicted == work.ids[1:]))
        earned = self._upload(np.array([self._right], work.device.real))
        work.device.launch(rewards.REWARD, work.correct, earned)


class LossOnDevice(Stage):
    """With its fix: every prediction is compared where it is; a batched decoder has done that already."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self.batched = work.plan.decode == "chunk"

    def right(self) -> None:
        """The host does not know the number of right predictions."""

    def token(self, t: int) -> None:
        work = self._work
        rows = (work.prediction_row, t)
        work.device.launch(rewards.COMPARE, work.correct, work.prediction, work.ids_on_device, *rows)

    def chunk(self) -> None:
        """Do nothing: the decoder's kernel counts."""
