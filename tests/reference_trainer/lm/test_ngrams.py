"""Witten-Bell models of n-grams, against counting and interpolating one context after the other."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from reference_trainer.lm.heldout import NgramModel

VOCABULARY = 7


def probabilities(model: NgramModel, ids: np.ndarray) -> np.ndarray:
    """The probabilities (T, V) of the successor of each token of `ids` (T,), by the longest n-grams."""
    *_, result = model._interpolated(model._contexts(np.append(ids, 0)))  # nothing depends on the token appended
    return result


def slow(training: tuple[int, ...], context: tuple[int, ...]) -> np.ndarray:
    """The probabilities of all tokens after `context`, as the definition reads."""
    below = np.full(VOCABULARY, 1 / VOCABULARY) if not context else slow(training, context[1:])
    return interpolated(training, context, below)


def interpolated(training: tuple[int, ...], context: tuple[int, ...], below: np.ndarray) -> np.ndarray:
    length = len(context)
    followers = Counter(
        training[i + length] for i in range(len(training) - length) if training[i : i + length] == context
    )
    if not followers:
        return below
    counts = np.array([followers[token] for token in range(VOCABULARY)])
    return (counts + len(followers) * below) / (counts.sum() + len(followers))


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_probabilities_are_those_of_the_definition(order: int) -> None:
    """Token 6 is in no training text, and many contexts are not either."""
    random = np.random.default_rng(order)
    training, judged = random.integers(0, 6, 60), random.integers(0, VOCABULARY, 40)
    model = NgramModel(training.astype(np.int32), VOCABULARY, order)
    found = probabilities(model, judged.astype(np.int32))
    text, ids = tuple(training.tolist()), judged.tolist()
    expected = np.array(
        [slow(text, tuple(ids[max(0, end - order + 1) : end] if order > 1 else ())) for end in range(1, len(ids) + 1)]
    )
    assert found == pytest.approx(expected, rel=1e-12)
    assert found.sum(1) == pytest.approx(1, abs=1e-12)


def test_results_are_the_means_over_all_tokens_but_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference_trainer.lm.heldout._TILE_ELEMENTS", 5 * VOCABULARY)  # 8 tiles, the last one shorter
    random = np.random.default_rng(0)
    training, judged = random.integers(0, 6, 200).astype(np.int32), random.integers(0, VOCABULARY, 39).astype(np.int32)
    results = NgramModel(training, VOCABULARY, 3).evaluate(judged)
    assert [result.name for result in results] == ["1-gram counts", "2-gram counts", "3-gram counts"]
    for order, result in enumerate(results, 1):
        found = probabilities(NgramModel(training, VOCABULARY, order), judged)[:-1]
        targets = judged[1:]
        assert result.loss == pytest.approx(-np.log(found[np.arange(38), targets]).mean(), rel=1e-12)
        assert result.accuracy == pytest.approx(np.mean(found.argmax(1) == targets), rel=1e-12)
    assert results[0].parameters == 6
