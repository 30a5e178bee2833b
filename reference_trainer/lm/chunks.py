"""Chunks of token ids: the text is a stream of tokens, which is cut into chunks of one length.

Samples of text are tokenized in groups, the way that the plan says. No token is left out: chunk i predicts the tokens
i T + 1 to i T + T of the stream, from the one before each, and the stream begins again where the text ends.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.lm.corpus import Corpus, Samples
from reference_trainer.lm.tokenizer import Tokenizer, library_threads

T = TypeVar("T")


class Source(Protocol):
    """A source of chunks for the training loop."""

    def ids(self, index: int) -> np.ndarray:
        """Token ids of chunk `index` >= 0, int32 (tokens_per_chunk + 1,): the last one is the next chunk's first.

        :raises TrainerError: the chunk cannot be made.
        """

    def close(self) -> None:
        """Release workers and files. A second call does nothing."""


@dataclass(frozen=True)
class ChunkedText:
    """A text, its tokenizer, and the sizes by which it is cut into samples and chunks."""

    corpus: Corpus
    tokenizer: Tokenizer
    tokens_per_chunk: int
    """Predictions of a chunk."""
    samples_per_chunk: int
    """Samples of a group, which has about as many tokens as a chunk."""
    begin: int = 0
    """First sample that belongs to the text."""
    end: int | None = None
    """The sample after the last one that belongs to it; None: all from `begin` on."""

    @cached_property
    def sample_chars(self) -> int:
        """Characters of a sample such that a group of samples holds about `tokens_per_chunk` tokens."""
        return max(1, round(self.tokens_per_chunk * self.tokenizer.chars_per_token / self.samples_per_chunk))

    @cached_property
    def samples(self) -> Samples:
        """The samples.

        :raises TrainerError: the text is too short for one group.
        """
        return Samples(self.corpus, self.sample_chars, self.samples_per_chunk, slice(self.begin, self.end))

    def only(self, begin: int, end: int | None) -> ChunkedText:
        """The text of the samples from `begin` to before `end`."""
        return replace(self, begin=begin, end=end)


class TokenStream(ABC):
    """Cuts the tokens of consecutive groups of samples into chunks; a subclass tokenizes a group.

    Chunks can be requested in any order. The first request of a chunk reads the text up to it, once.
    """

    def __init__(self, text: ChunkedText) -> None:
        self._text = text
        self._samples = text.samples
        self._ends: list[int] = []
        """Tokens up to the end of each group, of the groups that were read so far."""
        self._last: tuple[int, np.ndarray] | None = None
        """The group that was read last, and its ids: the next chunk begins in it."""

    @property
    def whole_groups(self) -> int:
        """Groups of the text that have all their samples."""
        return len(self._samples) // self._samples.samples_per_chunk

    @abstractmethod
    def group(self, number: int) -> np.ndarray:
        """Token ids of group `number` of the text, int32."""

    @abstractmethod
    def close(self) -> None:
        """Release workers and files. A second call does nothing."""

    def ids(self, index: int) -> np.ndarray:
        """Token ids of chunk `index`; see `Source.ids`."""
        with marks.region("data"):  # around all of it: freeing thousands of ints takes time too
            missing, position = self._text.tokens_per_chunk + 1, index * self._text.tokens_per_chunk
            pieces = []
            while missing:
                group, offset = self._locate(position)
                piece = self._read(group)[offset : offset + missing]
                pieces.append(piece)
                position += len(piece)
                missing -= len(piece)
            return np.concatenate(pieces)

    def _locate(self, position: int) -> tuple[int, int]:
        """The group that holds token `position` of the stream, and the token's place in it."""
        ends, groups = self._ends, self._samples.groups
        while len(ends) < groups and position >= (ends[-1] if ends else 0):
            self._read(len(ends))
        if len(ends) == groups:  # the length of the text is known
            if not ends[-1]:
                raise TrainerError(f"corpus {self._text.corpus.name} has no tokens")
            position %= ends[-1]
        group = bisect_right(ends, position)
        return group, position - (ends[group - 1] if group else 0)

    def _read(self, group: int) -> np.ndarray:
        if self._last is None or self._last[0] != group:
            self._last = group, self.group(group)
            if group == len(self._ends):
                self._ends.append((self._ends[-1] if self._ends else 0) + len(self._last[1]))
        return self._last[1]


def worker_result(future: Future[T], work: str) -> T:
    """Wait for what a tokenizing worker returns.

    :param work: names the work in the error.
    :raises TrainerError: the worker failed.
    """
    if error := future.exception():
        reason = " ".join(str(error).split()) or "no reason given"
        raise TrainerError(f"{work}: its tokenizing worker failed: {type(error).__name__}: {reason}")
    return future.result()


def print_duration(how: str, samples: int, took: float, more: str = "") -> None:
    """Print how long the tokenization of a group of samples took, in ms."""
    each = took / samples
    print(
        f"{how} {samples} samples in {took:.1f} ms ({each:.{1 if each >= 1 else 2}f} ms per sample){more}", flush=True
    )


class Chunks(TokenStream):
    """Tokenizes each group of samples when it is needed, in the thread that requests the chunk.

    :param batch: tokenize the samples of a group in one call instead of one by one.
    :param threads: threads of the library that share such a call; they end with `close`.
    """

    def __init__(self, text: ChunkedText, *, batch: bool, threads: int = 1, verbose: bool = False) -> None:
        super().__init__(text)
        self._thread_count = threads
        self._threads: Any = None
        self._batch = batch
        self._verbose = verbose

    def close(self) -> None:
        """End the library's threads; a later call of `ids` starts them again."""
        self._threads = None

    def group(self, number: int) -> np.ndarray:
        texts = self._samples.group(number)
        began = time.perf_counter()
        pieces = self._encode_batch(texts) if self._batch else self._encode_each(texts)
        took = (time.perf_counter() - began) * 1e3
        marks.count("tokenized_samples", len(texts))
        if self._verbose:
            print_duration("Batch tokenized" if self._batch else "Tokenized one by one", len(texts), took)
        return np.concatenate(pieces)

    def _encode_each(self, texts: list[str]) -> list[np.ndarray]:
        pieces = []
        for text in texts:
            with marks.region("tokenize"):
                ids = self._text.tokenizer.encode(text)
            pieces.append(np.array(ids, np.int32))
        return pieces

    def _encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        with marks.region("tokenize"):
            if self._threads is None:
                self._threads = library_threads(self._thread_count)
            return self._text.tokenizer.encode_arrays(texts, self._threads)
