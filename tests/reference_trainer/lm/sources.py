"""Sources of chunks, for tests: what two of them give, and a tokenizer without a library."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText, Source
from reference_trainer.lm.corpus import Corpus


@dataclass
class Letters:
    """A tokenizer of any vocabulary: an id a character, the last ids of the vocabulary among them."""

    vocab_size: int = 200
    fingerprint: str = "letters"
    file: str = ""
    chars_per_token: float = 1.0

    def encode_arrays(self, texts: list[str], threads: object = None) -> list[np.ndarray]:
        return [np.array([self.vocab_size - 1 - ord(letter) % 100 for letter in text], np.int32) for text in texts]


def made_up(text: str, tokenizer: object, tokens: int, samples: int) -> ChunkedText:
    return ChunkedText(Corpus("made-up", text, "1" * 64, 1), tokenizer, tokens, samples)  # type: ignore[arg-type]


def assert_same(expected: Source, source: Source, indices: Iterable[int]) -> int:
    """Both sources give the same chunks, or refuse them with the same message; the number of refused chunks."""
    refused = 0
    for index in indices:
        one, other = (_outcome(each, index) for each in (expected, source))
        if isinstance(one, str):
            assert other == one
            refused += 1
        else:
            assert isinstance(other, np.ndarray), other
            assert other.dtype == np.int32
            assert np.array_equal(one, other), f"chunk {index}"
    return refused


def _outcome(source: Source, index: int) -> np.ndarray | str:
    try:
        return source.ids(index)
    except TrainerError as error:
        return str(error)
