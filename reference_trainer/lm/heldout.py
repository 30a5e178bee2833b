"""Evaluates a learning model on text that it never trains on, against n-gram counts of its training text.

Interpolated n-gram models (Witten and Bell): what counting can know of a text, to judge a learning model by.

    P(w | h) = (c(h w) + T(h) P(w | h')) / (c(h) + T(h))

c counts the training text, T(h) is the number of distinct tokens that follow the context h, and h' is h without its
first token. Below the empty context, all tokens are equally probable. A context that nothing follows in the training
text leaves P(w | h') as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText

SHARE: Final = 0.05
"""Share of a text's groups of samples, the last ones, that is held out."""


def split(text: ChunkedText) -> tuple[ChunkedText, ChunkedText]:
    """The text that is learned from, over and over, and the one that is held out."""
    groups = text.samples.groups
    if groups < 2:
        raise TrainerError(
            f"corpus {text.corpus.name} is one chunk of {text.tokens_per_chunk} tokens: none is left to be held out; "
            "give more text, or less --tokens-per-chunk"
        )
    training = (groups - max(1, round(SHARE * groups))) * text.samples_per_chunk
    return text.only(0, training), text.only(training, None)


_TILE_ELEMENTS: Final = 1 << 17
"""Probabilities in memory together: 1 MB, which the caches hold."""
JUDGED_TOKENS: Final = 30_000
"""Largest size of the held-out text: its accuracy is known to 0.3 points, and evaluating it takes a few steps' time."""
COUNTED_TOKENS: Final = 3_000_000
"""Largest size of the text that n-grams are counted in: some seconds of tokenization and sorting."""
ORDER: Final = 4
"""Length of the longest n-grams."""


@dataclass(frozen=True, slots=True)
class Yardstick:
    """The result of another model on the same held-out text."""

    name: str
    loss: float
    """Mean cross-entropy in nats a token."""
    accuracy: float
    """Share of tokens that the model holds for the most probable ones."""
    parameters: int | None = None
    """Numbers that the model has learned: of n-grams their counts."""
    tokens: int | None = None
    """Tokens that it learned from, those of every epoch among them."""
    cpu_s: float | None = None
    """CPU time of learning; None: not measured."""


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
    """Read the held-out text, and count n-grams in the training text: of large corpora in the first part of both."""
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


@dataclass(frozen=True, slots=True)
class _Counts:
    """The n-grams of one length in the training text, sorted by context, then by token."""

    codes: np.ndarray
    """(N,) context * V + token, each once; an n-gram's index is its number as a context of the next length."""
    sums: np.ndarray
    """(N + 1,) number of occurrences of all n-grams before this one."""


class NgramModel:
    """Counts of all n-grams of lengths 1 to `order` in the text `ids` (T,)."""

    def __init__(self, ids: np.ndarray, vocabulary: int, order: int) -> None:
        self._vocabulary, self._tokens = vocabulary, len(ids)
        self._counts: list[_Counts] = []
        contexts = np.zeros(len(ids), np.int64)
        for _ in range(order):
            complete = contexts >= 0
            codes, ngrams, counts = np.unique(
                contexts[complete] * vocabulary + ids[complete], return_inverse=True, return_counts=True
            )
            self._counts.append(_Counts(codes, np.concatenate([[0], np.cumsum(counts)])))
            contexts = _contexts_of_next_length(complete, ngrams)

    def evaluate(self, ids: np.ndarray) -> list[Yardstick]:
        """The results of the models of lengths 1 to `order` on all tokens of `ids` (T + 1,) but the first."""
        contexts, targets = self._contexts(ids), ids[1:].astype(np.int64)
        losses, correct = np.zeros(len(self._counts)), np.zeros(len(self._counts))
        rows = max(1, _TILE_ELEMENTS // self._vocabulary)
        for begin in range(0, len(targets), rows):
            tile = slice(begin, begin + rows)
            expected = targets[tile]
            lengths = self._interpolated([context[tile] for context in contexts])
            for index, probabilities in enumerate(lengths):
                losses[index] -= np.log(probabilities[np.arange(len(expected)), expected]).sum()
                correct[index] += np.count_nonzero(probabilities.argmax(1) == expected)
        size = np.cumsum([len(counts.codes) for counts in self._counts])
        return [
            Yardstick(f"{n}-gram counts", float(loss), float(accuracy), int(size[n - 1]), self._tokens)
            for n, (loss, accuracy) in enumerate(zip(losses / len(targets), correct / len(targets), strict=True), 1)
        ]

    def _interpolated(self, contexts: list[np.ndarray]) -> Iterator[np.ndarray]:
        """The probabilities (rows, V) by n-grams of length 1, then 2, and so on: one array, changed in place."""
        probabilities = np.full((1, self._vocabulary), 1 / self._vocabulary)
        self._interpolate(probabilities, self._counts[0], np.zeros(1, np.int64))
        probabilities = np.repeat(probabilities, len(contexts[0]), axis=0)
        yield probabilities
        for counts, numbers in zip(self._counts[1:], contexts[1:], strict=True):
            self._interpolate(probabilities, counts, numbers)
            yield probabilities

    def _contexts(self, ids: np.ndarray) -> list[np.ndarray]:
        """For each length, the numbers of the contexts of all tokens but the first; -1: not in the training text."""
        contexts, result = np.zeros(len(ids), np.int64), []
        for counts in self._counts:
            result.append(contexts[1:])
            codes = contexts * self._vocabulary + ids
            places = np.minimum(np.searchsorted(counts.codes, codes), len(counts.codes) - 1)
            known = (contexts >= 0) & (counts.codes[places] == codes)
            contexts = _contexts_of_next_length(known, places[known])
        return result

    def _interpolate(self, probabilities: np.ndarray, counts: _Counts, contexts: np.ndarray) -> None:
        """Make the probabilities (rows, V) of one length from those of the length below it, in place."""
        begins = np.searchsorted(counts.codes, contexts * self._vocabulary)
        types = np.searchsorted(counts.codes, (contexts + 1) * self._vocabulary) - begins
        types[contexts < 0] = 0
        followed = np.flatnonzero(types)
        begins, types = begins[followed], types[followed]
        totals = counts.sums[begins + types] - counts.sums[begins] + types
        probabilities[followed] *= (types / totals)[:, None]
        # the n-grams of all rows, one row after the other
        each = np.repeat(np.arange(len(followed)), types)
        ngrams = np.arange(len(each)) + (begins - np.cumsum(types) + types)[each]
        occurrences = counts.sums[ngrams + 1] - counts.sums[ngrams]
        probabilities[followed[each], counts.codes[ngrams] % self._vocabulary] += occurrences / totals[each]


def _contexts_of_next_length(complete: np.ndarray, ngrams: np.ndarray) -> np.ndarray:
    """The context of each token is the n-gram that ends before it; -1 where there is none."""
    contexts = np.full(len(complete), -1, np.int64)
    contexts[complete] = ngrams
    return np.concatenate([[-1], contexts[:-1]])
