"""Chunks that are tokenized in the background, while the device works on those before them.

Threads and not processes: SentencePiece gives up the GIL while it encodes, and with ids that come back as arrays little
is left that needs it. Threads start at once, no chunk crosses a pipe, and none outlives the trainer. One of them is
ours: a single worker is that one; more are the library's, since several of ours would wait for the GIL (docs/log.md).
"""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import checked, join, sample_chars, say
from reference_trainer.lm.corpus import Corpus, Samples
from reference_trainer.lm.tokenizer import Tokenizer, library_threads

AHEAD: Final = 16
"""Chunks that are tokenized ahead of the requested one; with 3,000 tokens each they take 200 kB."""
GROUP: Final = 4
"""Chunks of a task: handing one over costs the thread that asks some 10 µs."""
MOST_WORKERS: Final = 4
"""More would wait for our thread: what it does between two calls is some 15% of one worker's time in them."""


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """A worker for each core but one, which is the host device's: at least one."""
    return min(MOST_WORKERS, max(1, available_cores() - 1))


@dataclass(frozen=True, slots=True)
class _Group:
    """Consecutive chunks of one call."""

    first: int
    chunks: tuple[np.ndarray, ...]
    took: float
    """ms a chunk, in the worker."""


class ParallelChunks:
    """The same chunks as those of `Chunks`, tokenized in advance. Close it: it holds threads.

    Chunks are expected to be asked for in order; any other is right too, but then it is waited for. The threads begin
    with the first chunk asked for, after `close` too.

    :param workers: threads that tokenize; None: `default_workers()`.
    :param ahead: largest number of chunks that are tokenized ahead of the requested one.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        tokens_per_chunk: int,
        samples_per_chunk: int,
        *,
        workers: int | None = None,
        ahead: int = AHEAD,
        verbose: bool = False,
    ) -> None:
        self.chars_per_sample = sample_chars(tokenizer, tokens_per_chunk, samples_per_chunk)
        """Largest number of characters of a sample."""
        self.workers = default_workers() if workers is None else workers
        self._samples = Samples(corpus, self.chars_per_sample, samples_per_chunk)
        self._tokenizer = tokenizer
        self._tokens_per_chunk = tokens_per_chunk
        self._ahead = ahead
        self._group = max(1, min(GROUP, ahead // 2))  # two groups fit: one waits while the other is consumed
        self._verbose = verbose
        self._pool: ThreadPoolExecutor | None = None
        self._threads: Any = None
        self._pending: dict[int, Future[_Group]] = {}
        self._next = 0
        """First chunk that no worker was given."""

    def ids(self, index: int) -> np.ndarray:
        """Token ids of chunk `index`.

        :raises TrainerError: there are fewer than two, or the worker that was to tokenize it failed.
        """
        began = time.perf_counter()
        with marks.region("data"):
            self._submit(index)
            group = self._wait(index)
        marks.count("tokenized_samples", self._samples.samples_per_chunk)
        if self._verbose:
            waited = (time.perf_counter() - began) * 1e3
            say("Tokenized in parallel", self._samples.samples_per_chunk, group.took, f", waited {waited:.2f} ms")
        return checked(group.chunks[index - group.first], index)

    def texts(self, index: int) -> list[str]:
        """The samples of chunk `index`."""
        return self._samples.chunk(index)

    def close(self) -> None:
        """End the workers; what they are at takes some milliseconds, what waits is dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = self._threads = None
            self._pending.clear()

    def _submit(self, index: int) -> None:
        """Submit every chunk that may be tokenized while chunk `index` is used."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="tokenize")
            self._threads = library_threads(self.workers) if self.workers > 1 else None
        if index not in self._pending and index != self._next:
            for future in self._pending.values():
                future.cancel()
            self._pending.clear()
            self._next = index
        while self._next + self._group <= index + self._ahead + 1:
            future = self._pool.submit(self._encode, self._next)
            for _ in range(self._group):
                self._pending[self._next] = future
                self._next += 1

    def _wait(self, index: int) -> _Group:
        """Wait for the group of chunk `index`; drop those before it."""
        while (first := next(iter(self._pending))) < index:
            del self._pending[first]
        future = self._pending.pop(index)
        if error := future.exception():
            what = " ".join(str(error).split()) or "no reason given"
            raise TrainerError(f"chunk {index}: its tokenizing worker failed: {type(error).__name__}: {what}")
        return future.result()

    def _encode(self, first: int) -> _Group:
        """Tokenize a group of chunks, in the background thread."""
        began = time.perf_counter()
        texts = [text for index in range(first, first + self._group) for text in self.texts(index)]
        pieces = self._tokenizer.encode_arrays(texts, self._threads)
        each = self._samples.samples_per_chunk
        chunks = tuple(join(pieces[i : i + each], self._tokens_per_chunk) for i in range(0, len(pieces), each))
        return _Group(first, chunks, (time.perf_counter() - began) * 1e3 / self._group)
