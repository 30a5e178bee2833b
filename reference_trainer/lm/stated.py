"""States the results of a recorded run, so that `compare` can tell whether two variants compute the same.

Errors may begin late or be rare, so that no single sample of the run shows them all. Stated are:

- the first chunks in full, each carrying the state of the one before on;
- chunks with each id of the vocabulary once, in full: no row of a table and no logit is left out;
- of the chunks after these: a running checksum of the text, and sums over their predictions;
- whether the reported losses are those of the predictions, and whether each token is counted once;
- at the end the chunks of the vocabulary and the first chunk again, in full, from a state of zero: the program that ran
  for thousands of chunks still computes what it did at first;
- whether the first and the last chunks of the run predict the same when each is run by itself, under another number;
- whether each chunk was read, and was that of the text. For this the text is tokenized anew, one sample at a time.

All of it lies outside the measured steps, but for a checksum of each chunk's ids. What nobody sees is an error that
touches chunks between the first KEPT_CHUNKS and the last LAST_CHUNKS and leaves all others right.
"""

from __future__ import annotations

import math
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from profiler import marks
from reference_trainer.devices.protocol import Device
from reference_trainer.kernels.rewards import DECAY
from reference_trainer.lm.chunks import ChunkedText, Chunks, Source
from reference_trainer.lm.job import Job, training_text
from reference_trainer.lm.model import ModelConfig, Weights
from reference_trainer.lm.observed import ObservedDevice, Outcome
from reference_trainer.lm.result import KEPT_CHUNKS, LAST_CHUNKS, Metrics, Result, Run

CHUNKS: Final = 3
"""First chunks that are stated in full: the state and the modulator are carried into the second and the third, and a
fix that uses two buffers in turn, or replays a captured graph, has used each of them again."""
MAX_LOGITS: Final = 1 << 29
"""Bytes of a chunk's logits from which no results are stated: they are fetched into page-locked memory, 49 MB with the
vocabulary of 4,096 of preset gpu, and 3 GB with 250,000."""
MAX_SECONDS: Final = 60.0
"""Time in chunks that are stated in full, after which there are no more: large models take minutes a chunk on the host.
The first chunk compiles kernels, which takes more than 10 s on a busy machine."""
MAX_TOKENS: Final = 1 << 22
"""Tokens of the text that are tokenized anew: that takes 2 s. The text that comes with the trainer has 185,000."""
SECOND_PASS_S: Final = 0.5
"""Seconds in which the first chunks are run a second time, and seconds for the last ones: two of as-found, all of
fixed."""
_FORGOTTEN: Final = 2000
"""Tokens after which the state does not depend on the one before: it remembers 2 to 50 tokens."""
_FLOAT32: Final = 1e-4
"""Largest difference of two logits of order 1 in fp32. As-found and fixed differ by up to 6e-6 in tiny and small."""
_LOW_PRECISION: Final = 0.05
"""With fewer bits: TF32 and bfloat16 round each factor of a product by up to 2^-11 and 2^-9."""
_WIDTH: Final = 256
"""Width up to which this holds; beyond, rounding grows with the square root of the number of products in a sum."""
_OF_STATE: Final = 0.1
"""Largest difference of states, relative to the largest element, over that of logits. As-found and fixed differ by up
to 7e-7. The modulator is some 1e-4 of the state in the first chunks, and an error in it must be visible."""
_LEARNING: Final = 10
"""A learning run may differ by so many times as much: each update carries the rounding of the one before on."""
_BLOCK: Final = 100
"""Consecutive predictions whose sum is stated, each id standing for a random number from 0 to 1. Of 100 wrong ones the
sum is off by 4 (standard deviation), and two that rounding decides otherwise move it by at most 2."""


def margins(logits: np.ndarray) -> np.ndarray:
    """The gap between the two largest numbers of each row; it overwrites the largest."""
    rows = np.arange(len(logits))
    first = logits.argmax(axis=1)
    largest = logits[rows, first]
    logits[rows, first] = -np.inf
    gaps: np.ndarray = largest - logits.max(axis=1)
    return gaps


def are_stated(config: ModelConfig, tokens: int, *, learn: bool) -> bool:
    """Whether the results of chunks of so many tokens can be stated: a model that learns needs no logits for it."""
    return learn or 4 * tokens * config.vocabulary <= MAX_LOGITS


def tolerance(dtype: str, width: int) -> float:
    """By how much a logit may differ between two variants that compute the same."""
    largest = _FLOAT32 if dtype == "float32" else _LOW_PRECISION
    return largest * math.sqrt(max(1.0, width / _WIDTH))


def vocabulary_chunks(vocabulary: int, tokens: int) -> list[np.ndarray]:
    """Chunks of at most so many predictions, in which each id of the vocabulary is predicted from once."""
    order = np.random.default_rng(0).permutation(vocabulary).astype(np.int32)
    stream = np.append(order, order[0])
    return [stream[begin : begin + tokens + 1] for begin in range(0, vocabulary, tokens)]


def statements(job: Job, source: Source, device: Device, weights: Weights | None) -> Statements | None:
    """What states the results of a recorded run; None where none are stated.

    :param weights: None: the model learns, and makes its own.
    """
    settings, config = job.settings, job.config
    if marks.recorder() is None or settings.empty_kernels:
        return None
    if not are_stated(config, settings.tokens_per_chunk, learn=job.plan.learn):
        return None
    allowed = tolerance(settings.stated_dtype, config.width)
    bias = np.zeros(config.vocabulary, np.float32) if weights is None else weights.decoder_bias
    keeps = settings.fixes is None or not job.plan.graph  # the address of predictions in a captured graph is fixed
    return Statements(source, device, training_text(job), bias, allowed=allowed, keeps=keeps, learn=job.plan.learn)


class Statements:
    """States the results of a run; it is the source of the run's chunks, and has the device for its program.

    :param text: the text that `source` reads.
    :param bias: of the decoder (V,).
    :param keeps: the program has to keep the predictions of its first and its last chunks.
    :ivar device: for the program, which reads its chunks from here. Chunks below 0 are those of the vocabulary.
    """

    def __init__(
        self,
        source: Source,
        device: Device,
        text: ChunkedText,
        bias: np.ndarray,
        *,
        allowed: float,
        keeps: bool,
        learn: bool,
    ) -> None:
        self._source = source
        self._text = text
        self._bias = bias
        self._allowed = allowed
        self._keeps = keeps
        self._learns = learn
        self._spent = 0.0
        """Seconds in chunks that were stated in full."""
        self._of_vocabulary = [] if learn else vocabulary_chunks(len(bias), text.tokens_per_chunk)
        self._observed = ObservedDevice(device, len(bias))
        self.device: Any = self._observed
        self._near_ties: list[float] = []
        """Shares of predictions that rounding may decide otherwise, of the chunks stated in full."""
        self._checksums: dict[int, int] = {}
        """Number of each chunk that was read -> CRC-32 of its ids."""
        self._predicted: dict[int, Any] = {}
        """Number of a chunk -> its predictions, of those that the program keeps."""
        self._right: dict[int, int] = {}
        """Number of such a chunk -> how many of its predictions are right."""
        self._modulator = 0.0
        """The modulator on the device after the last chunk."""
        self._unread: list[int] = []
        self._reported = [list[tuple[Sequence[int], Result]](), deque[tuple[Sequence[int], Result]](maxlen=LAST_CHUNKS)]
        """Numbers of chunks, with the metrics that were read for them together: of the first and of the last chunks."""
        self._noted = set[int]()
        """Numbers of the chunks that the program ran. A model that learns begins anew after its warm-up."""
        self._miscounted = 0
        self._covered = 0
        """Tokens that the program does not count as the chunk's, and those whose metrics were read."""

    # ------------------------------------------------------------ the source of chunks

    def ids(self, index: int) -> np.ndarray:
        """Token ids of chunk `index`; see `Source.ids`."""
        if index < 0:  # a chunk of the vocabulary, or one that is run a second time
            again = ~index - len(self._of_vocabulary)
            return self._of_vocabulary[~index] if again < 0 else self._source.ids(again)
        ids = self._source.ids(index)
        if index not in self._checksums:
            self._checksums[index] = zlib.crc32(ids.tobytes())
        return ids

    def close(self) -> None:
        self._source.close()

    # ------------------------------------------------------------ chunks in full

    def each_id(self) -> list[int]:
        """The numbers of the chunks that hold the vocabulary; empty where the model learns."""
        return [~number for number in range(len(self._of_vocabulary))]

    @property
    def is_late(self) -> bool:
        """Whether the chunks took so long that no more are stated in full, for the rest of the run."""
        return self._spent >= MAX_SECONDS

    def reset(self) -> None:
        """Go on from a state of zero: wherever two runs were, they are at the same place then."""
        self._observed.reset()

    def in_full(self, run: Run, numbers: Sequence[int], *, is_first: bool = False) -> Iterator[Result]:
        """Run these chunks, state in full what each leaves, and the mean loss of all of them.

        :param is_first: nothing was learned before the first of them.
        """
        metrics, left = Metrics(), len(numbers)
        with self._observed.observing():
            for result in run(self._in_time(numbers)):
                self._state(is_first=is_first)
                is_first = False
                metrics.add(result)
                left -= 1
                yield result
        loss, _ = metrics.means()
        if loss is not None and not left and not self._learns:
            marks.result("loss", loss, rtol=1e-5, atol=max(self._near_ties, default=0.0))

    def _in_time(self, numbers: Iterable[int]) -> Iterator[int]:
        """The numbers, as long as there is time."""
        for number in numbers:
            if self.is_late:
                return
            began = time.perf_counter()
            yield number
            self._spent += time.perf_counter() - began

    def _state(self, *, is_first: bool) -> None:
        """State the oldest chunk that was run and not stated yet."""
        outcome, allowed = self._observed.outcome(), self._allowed
        if outcome.losses is not None:
            allowed *= _LEARNING
            if is_first:  # before the first update: the same kernels give the same bits
                marks.result("predictions", outcome.predictions)
            marks.result("losses", outcome.losses, rtol=allowed, atol=allowed)
        else:
            self._state_predictions(outcome)
        largest = float(np.abs(outcome.state).max())
        marks.result("state", outcome.state, rtol=0, atol=_OF_STATE * allowed * largest)

    def _state_predictions(self, outcome: Outcome) -> None:
        assert outcome.logits is not None
        gaps = margins(outcome.logits + self._bias)
        near_ties = int(np.sum(gaps <= self._allowed))
        self._near_ties.append(near_ties / len(gaps))
        marks.result("predictions", outcome.predictions, atol=self._allowed, margins=gaps)
        correct = round(float(outcome.results[1]) * len(gaps))
        marks.result("correct predictions", float(correct), rtol=0, atol=near_ties + 0.5)

    # ------------------------------------------------------------ all other chunks

    def note(self, number: int, result: Result) -> None:
        """Keep what the program gave for a chunk; `finish` states it."""
        self._noted.add(number)
        self._miscounted += abs(result.tokens - self._text.tokens_per_chunk)
        self._covered += result.covers
        self._unread.append(number)
        if result.predicted is not None:
            self._predicted[number] = result.predicted
            if number >= KEPT_CHUNKS + LAST_CHUNKS:  # its predictions are in the place of these
                self._predicted.pop(number - LAST_CHUNKS, None)
        if result.covers:
            self._reported[number >= KEPT_CHUNKS].append((self._unread, result))
            self._unread = []

    def finish(self) -> None:
        """State what is known of all chunks. Call it before any of them is run again."""
        text = self._true_text(max(self._checksums, default=0))
        wrong, running = len(self._noted - self._checksums.keys()), 0
        for number, checksum in sorted(self._checksums.items()):
            if number < KEPT_CHUNKS:
                running = zlib.crc32(checksum.to_bytes(4, "little"), running)
                marks.result("running checksum of the text", running)
            ids = text(number)
            wrong += ids is not None and zlib.crc32(ids) != checksum
        marks.result("chunks that are not of the text", wrong)
        if not self._learns:
            noted = len(self._noted)
            uncovered = abs(self._covered - noted * self._text.tokens_per_chunk)
            marks.result("tokens that are not counted once", self._miscounted + uncovered)
            if self._keeps:
                kept = {*range(min(noted, KEPT_CHUNKS)), *range(max(0, noted - LAST_CHUNKS), noted)}
                marks.result("chunks whose predictions are not kept", len(kept - self._predicted.keys()))
            self._modulator = self._observed.modulator()
            self._state_sums(text)

    def _state_sums(self, text: Callable[[int], Any]) -> None:
        values = np.random.default_rng(1).random(len(self._bias))
        atol = 2 + _BLOCK * max(self._near_ties, default=0.0)
        predicted = {number: self._on_host(ids) for number, ids in sorted(self._predicted.items())}
        for ids in self._predicted.values():
            if not isinstance(ids, list | np.ndarray):  # what is left out later must not be right
                self.device.upload_into(ids, np.full(ids.shape, -1, np.int32))
        self._predicted = predicted
        begun = CHUNKS if self.is_late else KEPT_CHUNKS  # where it is late, chunks after these did not begin from zero
        for number, ids in predicted.items():
            if number < begun:
                sums = np.add.reduceat(values.take(ids, mode="wrap"), np.arange(0, len(ids), _BLOCK))
                marks.result("sums over predictions", sums, rtol=0, atol=atol)
            if (targets := text(number)) is not None:
                self._right[number] = int(np.sum(ids == targets[1:]))
        miscounted = 0.0
        for numbers, result in (*self._reported[0], *self._reported[1]):
            if not all(number in self._right for number in numbers):
                continue
            right = sum(self._right[number] for number in numbers)
            assert result.loss is not None
            assert result.accuracy is not None
            reported = result.accuracy * result.covers, (1 - result.loss) * result.covers
            miscounted = max(miscounted, *(abs(each - right) for each in reported))
        if predicted:
            marks.result("predictions that the reported loss miscounts", miscounted, rtol=0, atol=0.5)

    def repeat(self, run: Run) -> None:
        """Run the chunks of which predictions are kept a second time, and state how many predict something else."""
        first = [number for number in self._predicted if CHUNKS <= number < KEPT_CHUNKS]
        last = [number for number in self._predicted if number >= KEPT_CHUNKS and number in self._right]
        if not first or self._learns or self.is_late:  # late: the first of them may not have begun from zero
            return
        self.reset()  # as before these chunks
        for _ in run(iter(self.each_id())):
            pass
        wrong = sum(different > 0 for _, different in self._differences(run, first))
        if last:
            tokens, modulator = self._text.tokens_per_chunk, self._modulator
            for number in reversed(last):
                modulator = (modulator - (1 - float(DECAY)) * self._right[number] / tokens) / float(DECAY)
            self._observed.reset(modulator)
            allowed, known = 1 + tokens * max(self._near_ties, default=0.0), last[0] + -(-_FORGOTTEN // tokens)
            wrong += sum(different > allowed for number, different in self._differences(run, last) if number >= known)
        marks.result("chunks that a second pass predicts otherwise", wrong)

    def _differences(self, run: Run, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Run these chunks again, as long as there is time; how many predictions of each are others.

        Each is run by itself under a number below 0. What a program does only for some chunks, it does not do then.
        """
        end = time.perf_counter() + SECOND_PASS_S
        for number in numbers:
            if time.perf_counter() > end:
                return
            (result,) = run(iter([~(len(self._of_vocabulary) + number)]))
            before, again = self._predicted[number], self._on_host(result.predicted)
            yield number, int(np.sum(before != again)) if len(before) == len(again) else len(before)

    def _on_host(self, predicted: Any) -> np.ndarray:
        if not isinstance(predicted, list | np.ndarray):
            predicted = self.device.download(predicted)[: self._text.tokens_per_chunk]
        return np.array(predicted, np.int32)

    def _true_text(self, last: int) -> Callable[[int], Any]:
        """Tokenize the text anew up to chunk `last`, for a function that returns the ids of a chunk.

        It returns None for a chunk that lies behind MAX_TOKENS.
        """
        again, tokens = Chunks(self._text, batch=False), self._text.tokens_per_chunk
        groups, length, needed = list[np.ndarray](), 0, min(MAX_TOKENS, (last + 1) * tokens + 1)
        while length < needed and len(groups) < self._text.samples.groups:
            groups.append(again.group(len(groups)))
            length += len(groups[-1])
        stream, is_whole = np.concatenate(groups), len(groups) == self._text.samples.groups

        def ids(number: int) -> Any:
            end = (number + 1) * tokens + 1
            return stream.take(range(end - tokens - 1, end), mode="wrap") if is_whole or end <= length else None

        return ids
