"""Evaluates a learning model on text that it never trains on, against bigram counts of its training text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText

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


@dataclass(frozen=True, slots=True)
class Baseline:
    """The result of a model that only counts pairs of tokens, on text that it was not trained on."""

    loss: float
    """Mean cross-entropy in nats a token, each count raised by one so that nothing is impossible."""
    accuracy: float
    """Share of tokens that are the most frequent successor of the one before them."""


def bigram_baseline(training: Iterable[np.ndarray], held_out: Sequence[np.ndarray], vocabulary: int) -> Baseline:
    """Bigram counts of the chunks `training` (T + 1,), judged on the chunks `held_out`; no table of V^2 is made."""
    pairs, counts = np.unique(np.concatenate([_pairs(ids, vocabulary) for ids in training]), return_counts=True)
    before, after = np.divmod(pairs, vocabulary)
    totals = np.bincount(before, counts, vocabulary)
    guesses = np.full(vocabulary, np.argmax(np.bincount(after, counts, vocabulary)))  # for a token not seen before
    order = np.lexsort((-after, counts))  # the last one wins: the most frequent, the lowest id of equals
    guesses[before[order]] = after[order]

    judged = np.concatenate([_pairs(ids, vocabulary) for ids in held_out])
    position = np.minimum(np.searchsorted(pairs, judged), len(pairs) - 1)
    count = np.where(pairs[position] == judged, counts[position], 0)
    current, following = np.divmod(judged, vocabulary)
    losses = np.log(totals[current] + vocabulary) - np.log(count + 1)
    return Baseline(float(losses.mean()), float(np.mean(guesses[current] == following)))


def _pairs(ids: np.ndarray, vocabulary: int) -> np.ndarray:
    """Each token with the one after it, as one number."""
    return ids[:-1].astype(np.int64) * vocabulary + ids[1:]


JUDGED_TOKENS: Final = 30_000
"""Largest size of the held-out text: its accuracy is known to 0.3 points, and evaluating it takes a few steps' time."""
COUNTED_TOKENS: Final = 3_000_000
"""Largest size of the text that bigrams are counted in: a second or two of tokenization."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The held-out text, and the losses that the model has to beat on it."""

    held_out: tuple[np.ndarray, ...]
    """Ids (T + 1,) of chunks that are never learned from; the last one may be shorter."""
    baseline: Baseline
    uniform_loss: float
    """Loss of a model that has learned nothing: ln V, in nats."""


def goal_of(training: ChunkedText, held_out: ChunkedText, vocabulary: int) -> Goal:
    """Read the held-out text, and count pairs in the training text: of large corpora in the first part of both.

    :raises TrainerError: the held-out text has fewer than two tokens.
    """
    judged, length = read_ids(held_out, JUDGED_TOKENS), held_out.tokens_per_chunk
    chunks = tuple(judged[begin : begin + length + 1] for begin in range(0, len(judged) - 1, length))
    if not chunks:
        raise TrainerError(
            f"corpus {held_out.corpus.name}: the held-out text has fewer than two tokens; give more text"
        )
    baseline = bigram_baseline([read_ids(training, COUNTED_TOKENS)], chunks, vocabulary)
    return Goal(chunks, baseline, math.log(vocabulary))


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
