"""Results of a chunk, of several chunks, and of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import Source
from reference_trainer.lm.heldout import Yardstick

IN_FLIGHT = 2
"""Chunks: one that the device works on, and the next, so that it never waits for the host."""
QUIET_CHUNKS = 16
"""Chunks whose metrics are read together by `quiet-logging`: 16 of 3,000 tokens are some ms on a GPU."""
KEPT_CHUNKS = 64
"""First chunks whose predictions a program keeps: as-found does far fewer in the time of a comparison."""
LAST_CHUNKS = 2 * QUIET_CHUNKS
"""Last chunks whose predictions it keeps too: so many hold QUIET_CHUNKS whose metrics are read together."""


@dataclass(frozen=True, slots=True)
class Result:
    """A chunk's metrics."""

    tokens: int
    """Predictions of the chunk."""
    loss: float | None
    """Mean loss a token: 0/1, or cross-entropy in nats where the model learns; None: not read with this chunk."""
    accuracy: float | None
    covers: int
    """Tokens that loss and accuracy are the means of; more than the chunk's where several are read together."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Other values of a learning step: learning rate, norm of the gradient."""
    predicted: Any = None
    """The predicted ids on the host or on the device; None: nobody keeps them."""


Run = Callable[[Iterator[int]], Iterator[Result]]
"""Runs the chunks of these numbers and yields what each gave, in their order; nothing is in flight when it ends.

The number of the next chunk is requested when its turn comes, so that the caller decides then whether to go on."""


def kept_place(number: int) -> int:
    """Which of KEPT_CHUNKS + LAST_CHUNKS places keeps the predictions of chunk `number`; later chunks take turns."""
    return number if 0 <= number < KEPT_CHUNKS else KEPT_CHUNKS + number % LAST_CHUNKS


class Forward(Protocol):
    """A model that takes chunks and gives results, up to IN_FLIGHT chunks later."""

    def submit(self, ids: np.ndarray, number: int = KEPT_CHUNKS) -> None:
        """Begin with chunk `number`, whose ids are `ids` (T + 1,) int32."""

    def collect(self) -> Result:
        """Wait for the oldest chunk that was not collected yet."""

    def flush(self) -> Result | None:
        """Metrics that no chunk has returned yet, if there are any; waits until the device is idle."""


def running(model: Forward, source: Source, *, depth: int) -> Run:
    """The function that runs `model` over chunks of `source`, with up to `depth` of them in flight."""

    def run(chunks: Iterator[int]) -> Iterator[Result]:
        flying, number = 0, next(chunks, None)
        while number is not None or flying:
            if number is not None:
                model.submit(source.ids(number), number)
                flying += 1
            result = model.collect() if flying == depth or number is None else None
            if number is not None:
                number = next(chunks, None)
            if result is not None:
                flying -= 1
                unread = model.flush() if number is None and not flying else None
                if unread is not None:
                    result = replace(result, loss=unread.loss, accuracy=unread.accuracy, covers=unread.covers)
                yield result

    return run


class Metrics:
    """Means over the tokens whose metrics were read."""

    def __init__(self) -> None:
        self._loss = self._accuracy = 0.0
        self._covers = 0

    def add(self, result: Result) -> None:
        """Take in what a chunk gave back; nothing, where it gave no metrics."""
        if result.loss is not None and result.accuracy is not None:
            self._loss += result.loss * result.covers
            self._accuracy += result.accuracy * result.covers
            self._covers += result.covers

    def means(self) -> tuple[float | None, float | None]:
        """Loss and accuracy."""
        if not self._covers:
            return None, None
        return self._loss / self._covers, self._accuracy / self._covers


@dataclass(frozen=True, slots=True)
class Summary:
    """The trainer's own measurements of a run, recorded or not."""

    chunks: int
    tokens: int
    seconds: float
    """Time of the steps, without evaluations on held-out text."""
    tokens_per_s: float
    loss: float | None
    """Mean loss per token: 0/1, or cross-entropy in nats where the model learns; None with empty kernels."""
    accuracy: float | None
    heldout_loss: float | None = None
    """Cross-entropy in nats after the last step, on text that is not learned from; None where nothing is learned."""
    heldout_accuracy: float | None = None
    yardsticks: tuple[Yardstick, ...] = ()
    """This model and others on the same held-out text."""
    uniform_loss: float | None = None
    """ln V: what a model that knows nothing reaches."""
    peak_memory_bytes: int | None = None
    """Peak memory of tensors on a GPU, or of the process on the host device; None: unknown."""


class NotWrittenError(TrainerError):
    """A run that is done, and of which something could not be written.

    :ivar summary: of the run.
    """

    def __init__(self, message: str, summary: Summary) -> None:
        super().__init__(message)
        self.summary = summary
