"""Chunks of token ids out of samples of text, tokenized the way that the plan says.

Every source of chunks shares what is here: how long a sample is, and how the ids of samples become those of a chunk.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.lm.corpus import Corpus, Samples
from reference_trainer.lm.tokenizer import Tokenizer, library_threads


class Source(Protocol):
    """A source of chunks for the training loop."""

    def ids(self, index: int) -> np.ndarray:
        """Token ids of chunk `index` >= 0, int32 (T + 1,), 1 <= T <= tokens_per_chunk; epochs wrap.

        :raises TrainerError: it cannot be made.
        """

    def close(self) -> None:
        """Give back what it holds: workers, open files. More than once does nothing more."""


def sample_chars(tokenizer: Tokenizer, tokens_per_chunk: int, samples_per_chunk: int) -> int:
    """Characters of a sample such that the samples of a chunk hold about `tokens_per_chunk` tokens."""
    return max(1, round(tokens_per_chunk * tokenizer.chars_per_token / samples_per_chunk))


def join(pieces: Sequence[np.ndarray], tokens_per_chunk: int) -> np.ndarray:
    """The ids of a chunk, int32 (T + 1,), out of those of its samples; what is beyond is cut off."""
    return np.concatenate(pieces)[: tokens_per_chunk + 1]


def checked(ids: np.ndarray, index: int) -> np.ndarray:
    """`ids` if there is something to predict in them.

    :raises TrainerError: there are fewer than two.
    """
    if len(ids) < 2:
        raise TrainerError(f"chunk {index} has {len(ids)} tokens: a prediction needs two, raise --tokens-per-chunk")
    return ids


def say(how: str, samples: int, took: float, more: str = "") -> None:
    """Print what the tokenization of a chunk took, in ms."""
    each = took / samples
    print(
        f"{how} {samples} samples in {took:.1f} ms ({each:.{1 if each >= 1 else 2}f} ms per sample){more}", flush=True
    )


class Chunks:
    """Chunk i of the corpus as ids (T + 1,) int32, 1 <= T <= tokens_per_chunk; what is beyond is cut off.

    :param batch: tokenize a chunk's samples in one call instead of one by one.
    :param threads: of the library, which share out such a call; they wait for the next one until `close`.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        tokens_per_chunk: int,
        samples_per_chunk: int,
        *,
        batch: bool,
        threads: int = 1,
        verbose: bool = False,
    ) -> None:
        self.chars_per_sample = sample_chars(tokenizer, tokens_per_chunk, samples_per_chunk)
        """Largest number of characters of a sample."""
        self._samples = Samples(corpus, self.chars_per_sample, samples_per_chunk)
        self._tokenizer = tokenizer
        self._tokens_per_chunk = tokens_per_chunk
        self._thread_count = threads
        self._threads: Any = None
        self._tokenize = self._batch if batch else self._inline
        self._how = "Batch tokenized" if batch else "Tokenized one by one"
        self._verbose = verbose

    def ids(self, index: int) -> np.ndarray:
        """Token ids of chunk `index`."""
        with marks.region("data"):  # around all of it: freeing thousands of ints takes time too
            return self._ids(index)

    def texts(self, index: int) -> list[str]:
        """The samples of chunk `index`."""
        return self._samples.chunk(index)

    def close(self) -> None:
        """End the library's threads; a later call of `ids` starts them again."""
        self._threads = None

    def _ids(self, index: int) -> np.ndarray:
        texts = self.texts(index)
        began = time.perf_counter()
        pieces = self._tokenize(texts)
        took = (time.perf_counter() - began) * 1e3
        marks.count("tokenized_samples", len(texts))
        if self._verbose:
            say(self._how, len(texts), took)
        return checked(join(pieces, self._tokens_per_chunk), index)

    def _inline(self, texts: list[str]) -> list[np.ndarray]:
        pieces = []
        for text in texts:
            with marks.region("tokenize"):
                ids = self._tokenizer.encode(text)
            pieces.append(np.array(ids, np.int32))
        return pieces

    def _batch(self, texts: list[str]) -> list[np.ndarray]:
        with marks.region("tokenize"):
            if self._threads is None:
                self._threads = library_threads(self._thread_count)
            return self._tokenizer.encode_arrays(texts, self._threads)
