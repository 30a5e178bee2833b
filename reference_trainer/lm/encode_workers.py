"""All samples of a corpus as token ids, in order, by one background thread or several.

Threads and not processes: the library gives arrays without holding the GIL, so that they run beside one another, share
the text, and hand over what they made at no cost (figures: docs/log.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm.corpus import Samples
from reference_trainer.lm.tokenizer import Tokenizer

BLOCK_CHARS: Final = 1 << 18
"""A block is samples of about so many characters, some milliseconds of work."""
AHEAD: Final = 4
"""Blocks a worker that may wait, encoded, for an earlier one: bounds the memory."""

Encoded = tuple[np.ndarray, np.ndarray]
"""Tokens of each sample (S,) int64, and the ids of them all, one after the other."""


class EncodedSamples:
    """Iterates over the blocks of samples `first` and on; to be closed."""

    def __init__(self, samples: Samples, tokenizer: Tokenizer, dtype: np.dtype[Any], first: int, workers: int) -> None:
        self._samples = samples
        self._tokenizer = tokenizer
        self._dtype = dtype
        size = max(1, BLOCK_CHARS // samples.longest)
        end = samples.epoch_length
        self._blocks = [range(begin, min(begin + size, end)) for begin in range(first, end, size)]
        self._workers = max(1, min(workers, len(self._blocks)))
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="encode")

    def __iter__(self) -> Iterator[Encoded]:
        """:raises TrainerError: a worker failed."""
        waiting: deque[tuple[range, Future[Encoded]]] = deque()
        for block in self._blocks:
            waiting.append((block, self._pool.submit(self._encode, block)))
            if len(waiting) == AHEAD * self._workers:
                yield _result(*waiting.popleft())
        while waiting:
            yield _result(*waiting.popleft())

    def close(self) -> None:
        """End the threads; what waits is not encoded any more."""
        self._pool.shutdown(cancel_futures=True)

    def _encode(self, block: range) -> Encoded:
        pieces = self._tokenizer.encode_arrays([self._samples[number] for number in block])
        counts = np.fromiter(map(len, pieces), np.int64, len(pieces))
        return counts, np.concatenate(pieces, dtype=self._dtype, casting="unsafe")


def _result(block: range, future: Future[Encoded]) -> Encoded:
    if error := future.exception():
        what = " ".join(str(error).split()) or "no reason given"
        raise TrainerError(
            f"samples {block[0]} to {block[-1]}: their tokenizing worker failed: {type(error).__name__}: {what}"
        )
    return future.result()
