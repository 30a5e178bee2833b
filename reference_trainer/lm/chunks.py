"""Chunks of token ids, cut from a corpus and tokenized the way that the plan says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
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
        """Token ids of chunk `index` >= 0, int32 (T + 1,), 1 <= T <= tokens_per_chunk; epochs wrap.

        :raises TrainerError: the chunk cannot be made.
        """

    def close(self) -> None:
        """Release workers and files. A second call does nothing."""


@dataclass(frozen=True)
class ChunkedText:
    """A corpus, its tokenizer, and the sizes by which the text is cut into chunks."""

    corpus: Corpus
    tokenizer: Tokenizer
    tokens_per_chunk: int
    """Largest number of predictions of a chunk."""
    samples_per_chunk: int

    @cached_property
    def sample_chars(self) -> int:
        """Characters of a sample such that the samples of a chunk hold about `tokens_per_chunk` tokens."""
        return max(1, round(self.tokens_per_chunk * self.tokenizer.chars_per_token / self.samples_per_chunk))

    @cached_property
    def samples(self) -> Samples:
        """The text cut into samples.

        :raises TrainerError: it is too short for one chunk.
        """
        return Samples(self.corpus, self.sample_chars, self.samples_per_chunk)

    def join(self, pieces: Sequence[np.ndarray]) -> np.ndarray:
        """The ids of a chunk (T + 1,) from those of its samples, without what is beyond its largest size."""
        return np.concatenate(pieces)[: self.tokens_per_chunk + 1]


def check_length(ids: np.ndarray, index: int) -> np.ndarray:
    """Return the ids of chunk `index`.

    :raises TrainerError: there are fewer than two, which leaves nothing to predict.
    """
    if len(ids) < 2:
        raise TrainerError(f"chunk {index} has {len(ids)} tokens: a prediction needs two, raise --tokens-per-chunk")
    return ids


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
    """Print how long the tokenization of a chunk took, in ms."""
    each = took / samples
    print(
        f"{how} {samples} samples in {took:.1f} ms ({each:.{1 if each >= 1 else 2}f} ms per sample){more}", flush=True
    )


class Chunks:
    """Tokenizes each chunk when it is requested, in the thread that requests it.

    :param batch: tokenize a chunk's samples in one call instead of one by one.
    :param threads: threads of the library that share such a call; they end with `close`.
    """

    def __init__(self, text: ChunkedText, *, batch: bool, threads: int = 1, verbose: bool = False) -> None:
        self._text = text
        self._samples = text.samples
        self._thread_count = threads
        self._threads: Any = None
        self._batch = batch
        self._verbose = verbose

    def ids(self, index: int) -> np.ndarray:
        """Token ids of chunk `index`."""
        with marks.region("data"):  # around all of it: freeing thousands of ints takes time too
            return self._ids(self._samples.chunk(index), index)

    def close(self) -> None:
        """End the library's threads; a later call of `ids` starts them again."""
        self._threads = None

    def _ids(self, texts: list[str], index: int) -> np.ndarray:
        began = time.perf_counter()
        pieces = self._encode_batch(texts) if self._batch else self._encode_each(texts)
        took = (time.perf_counter() - began) * 1e3
        marks.count("tokenized_samples", len(texts))
        if self._verbose:
            print_duration("Batch tokenized" if self._batch else "Tokenized one by one", len(texts), took)
        return check_length(self._text.join(pieces), index)

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
