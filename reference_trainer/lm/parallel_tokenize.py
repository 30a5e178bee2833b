"""Chunks that are tokenized in the background, while the device works on those before them.

Threads and not processes: SentencePiece releases the GIL while it encodes, and with ids that come back as arrays little
is left that needs it. Threads start at once, no chunk crosses a pipe, and none outlives the trainer. One of them is
ours: a single worker is that one; more are the library's, since several of ours would wait for the GIL (docs/log.md).
"""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Final

import numpy as np

from profiler import marks
from reference_trainer.lm.chunks import ChunkedText, TokenStream, print_duration, worker_result
from reference_trainer.lm.tokenizer import library_threads

TASK_GROUPS: Final = 4
"""Consecutive groups of samples of a task: a task costs the requesting thread some 10 µs."""
AHEAD: Final = 4
"""Tasks that are done ahead of the requested one: 16 groups, 200 kB where each has 3,000 tokens."""
MOST_WORKERS: Final = 4
"""More would wait for our thread: what it does between two calls is some 15% of one worker's time in them."""


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """A worker for each core but one, which is the host device's: at least one."""
    return min(MOST_WORKERS, max(1, available_cores() - 1))


class ParallelChunks(TokenStream):
    """The same chunks as those of `Chunks`, tokenized in advance. Close it: it holds threads.

    Chunks are expected to be requested in order; any other chunk is tokenized while the caller waits. The threads start
    with the first request, also after `close`.

    :param workers: threads that tokenize; None: `default_workers()`.
    """

    def __init__(self, text: ChunkedText, *, workers: int | None = None, verbose: bool = False) -> None:
        super().__init__(text)
        self._workers = default_workers() if workers is None else workers
        self._verbose = verbose
        self._pool: ThreadPoolExecutor | None = None
        self._threads: Any = None
        self._pending: dict[int, Future[tuple[list[np.ndarray], float]]] = {}
        """By number of the task: its groups, and the ms that a group took."""

    def close(self) -> None:
        """End the workers: the task that they work on takes some milliseconds, the waiting ones are dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = self._threads = None
            self._pending.clear()

    def group(self, number: int) -> np.ndarray:
        """Wait for a group.

        :raises TrainerError: the worker that tokenized it failed.
        """
        began = time.perf_counter()
        task, position = divmod(number, TASK_GROUPS)
        self._submit(task)
        groups, took = worker_result(self._pending[task], f"group {number} of samples")
        samples = len(self._samples.group(number))
        marks.count("tokenized_samples", samples)
        if self._verbose:
            waited = (time.perf_counter() - began) * 1e3
            print_duration("Tokenized in parallel", samples, took, f", waited {waited:.2f} ms")
        return groups[position]

    def _submit(self, task: int) -> None:
        """Submit every task that may be worked on while `task` is used; drop all others."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="tokenize")
            self._threads = library_threads(self._workers) if self._workers > 1 else None
        tasks = -(-self._samples.groups // TASK_GROUPS)
        wanted = {(task + ahead) % tasks: None for ahead in range(AHEAD + 1)}  # in this order, without duplicates
        for number in [number for number in self._pending if number not in wanted]:
            self._pending.pop(number).cancel()
        for number in wanted:
            if number not in self._pending:
                self._pending[number] = self._pool.submit(self._encode, number)

    def _encode(self, task: int) -> tuple[list[np.ndarray], float]:
        """Tokenize the groups of a task, in the background thread."""
        began = time.perf_counter()
        numbers = range(task * TASK_GROUPS, min((task + 1) * TASK_GROUPS, self._samples.groups))
        texts = [self._samples.group(number) for number in numbers]
        pieces = iter(self._text.tokenizer.encode_arrays([text for group in texts for text in group], self._threads))
        groups = [np.concatenate(list(islice(pieces, len(group)))) for group in texts]
        return groups, (time.perf_counter() - began) * 1e3 / len(groups)
