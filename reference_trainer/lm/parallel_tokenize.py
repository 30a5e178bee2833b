"""Chunks that are tokenized in the background, while the device works on those before them.

Threads and not processes: SentencePiece releases the GIL while it encodes, and with ids that come back as arrays little
is left that needs it. Threads start at once, no chunk crosses a pipe, and none outlives the trainer. One of them is
ours: a single worker is that one; more are the library's, since several of ours would wait for the GIL (docs/log.md).
"""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from profiler import marks
from reference_trainer.lm.chunks import ChunkedText, check_length, print_duration, worker_result
from reference_trainer.lm.tokenizer import library_threads

GROUP: Final = 4
"""Consecutive chunks of a task: a task costs the requesting thread some 10 µs."""
AHEAD: Final = 4
"""Groups that are tokenized ahead of the requested one: 16 chunks, 200 kB where each has 3,000 tokens."""
MOST_WORKERS: Final = 4
"""More would wait for our thread: what it does between two calls is some 15% of one worker's time in them."""


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """A worker for each core but one, which is the host device's: at least one."""
    return min(MOST_WORKERS, max(1, available_cores() - 1))


class ParallelChunks:
    """The same chunks as those of `Chunks`, tokenized in advance. Close it: it holds threads.

    Chunks are expected to be requested in order; any other chunk is tokenized while the caller waits. The threads start
    with the first request, also after `close`.

    :param workers: threads that tokenize; None: `default_workers()`.
    """

    def __init__(self, text: ChunkedText, *, workers: int | None = None, verbose: bool = False) -> None:
        self._text = text
        self._samples = text.samples
        self._workers = default_workers() if workers is None else workers
        self._verbose = verbose
        self._pool: ThreadPoolExecutor | None = None
        self._threads: Any = None
        self._pending: dict[int, Future[tuple[list[np.ndarray], float]]] = {}
        """By number of the group: its chunks, and the ms that a chunk took."""

    def ids(self, index: int) -> np.ndarray:
        """Token ids of chunk `index`.

        :raises TrainerError: there are fewer than two, or the worker that tokenized them failed.
        """
        began = time.perf_counter()
        group, position = divmod(index, GROUP)
        with marks.region("data"):
            self._submit(group)
            chunks, took = worker_result(self._pending[group], f"chunk {index}")
        marks.count("tokenized_samples", self._text.samples_per_chunk)
        if self._verbose:
            waited = (time.perf_counter() - began) * 1e3
            print_duration("Tokenized in parallel", self._text.samples_per_chunk, took, f", waited {waited:.2f} ms")
        return check_length(chunks[position], index)

    def close(self) -> None:
        """End the workers: the group that they tokenize takes some milliseconds, the waiting ones are dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = self._threads = None
            self._pending.clear()

    def _submit(self, group: int) -> None:
        """Submit every group that may be tokenized while `group` is used; drop all others."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="tokenize")
            self._threads = library_threads(self._workers) if self._workers > 1 else None
        wanted = range(group, group + AHEAD + 1)
        for number in [number for number in self._pending if number not in wanted]:
            self._pending.pop(number).cancel()
        for number in wanted:
            if number not in self._pending:
                self._pending[number] = self._pool.submit(self._encode, number)

    def _encode(self, group: int) -> tuple[list[np.ndarray], float]:
        """Tokenize a group, in the background thread."""
        began = time.perf_counter()
        each, first = self._text.samples_per_chunk, group * GROUP
        texts = [text for index in range(first, first + GROUP) for text in self._samples.chunk(index)]
        pieces = self._text.tokenizer.encode_arrays(texts, self._threads)
        chunks = [self._text.join(pieces[i : i + each]) for i in range(0, len(pieces), each)]
        return chunks, (time.perf_counter() - began) * 1e3 / GROUP
