"""Evaluates a learning model on text that it never trains on, against n-gram counts of its training text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText
from reference_trainer.lm.ngrams import NgramModel, Yardstick

SHARE: Final = 0.05
"""Share of a text's groups of samples, the last ones, that is held out."""


def split(text: ChunkedText) -> tuple[ChunkedText, ChunkedText]:
    """The text that is learned from, over and over, and the one that is held out.

    :raises TrainerError: the text has fewer than two groups of samples.
    """
    groups = text.samples.groups
    if groups < 2:
        raise TrainerError(
            f"corpus {text.corpus.name} is one chunk of {text.tokens_per_chunk} tokens: none is left to be held out; "
            "give more text, or less --tokens-per-chunk"
        )
    training = (groups - max(1, round(SHARE * groups))) * text.samples_per_chunk
    return text.only(0, training), text.only(training, None)


JUDGED_TOKENS: Final = 30_000
"""Largest size of the held-out text: its accuracy is known to 0.3 points, and evaluating it takes a few steps' time."""
COUNTED_TOKENS: Final = 3_000_000
"""Largest size of the text that n-grams are counted in: some seconds of tokenization and sorting."""
ORDER: Final = 4
"""Length of the longest n-grams."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The held-out text, and the losses that the model has to beat on it."""

    held_out: tuple[np.ndarray, ...]
    """Ids (T + 1,) of chunks that are never learned from; the last one may be shorter."""
    counts: tuple[Yardstick, ...]
    """Results of n-gram counts, n from 2 to ORDER."""
    uniform_loss: float
    """Loss of a model that has learned nothing: ln V, in nats."""


def goal_of(training: ChunkedText, held_out: ChunkedText, vocabulary: int) -> Goal:
    """Read the held-out text, and count n-grams in the training text: of large corpora in the first part of both.

    :raises TrainerError: the held-out text has fewer than two tokens.
    """
    judged, length = read_ids(held_out, JUDGED_TOKENS), held_out.tokens_per_chunk
    chunks = tuple(judged[begin : begin + length + 1] for begin in range(0, len(judged) - 1, length))
    if not chunks:
        raise TrainerError(
            f"corpus {held_out.corpus.name}: the held-out text has fewer than two tokens; give more text"
        )
    counts = NgramModel(read_ids(training, COUNTED_TOKENS), vocabulary, ORDER).evaluate(judged)
    return Goal(chunks, tuple(counts[1:]), math.log(vocabulary))


def read_ids(text: ChunkedText, most: int) -> np.ndarray:
    """The token ids of a text from its beginning, at most so many."""
    pieces: list[np.ndarray] = []
    missing = most
    for number in range(text.samples.groups):
        ids = np.concatenate(text.tokenizer.encode_arrays(text.samples.group(number)))[:missing]
        pieces.append(ids)
        missing -= len(ids)
        if not missing:
            break
    return np.concatenate(pieces)
