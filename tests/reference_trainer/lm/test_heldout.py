"""What is held out is never learned from, and the bigram baseline counts as it says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import log

import numpy as np
import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import ChunkedText
from reference_trainer.lm.heldout import Split, bigram_baseline, split
from tests.reference_trainer.lm.sources import Letters, made_up


def test_the_last_chunks_are_held_out(text: ChunkedText, small_text: str) -> None:
    text = replace(text, tokens_per_chunk=500, samples_per_chunk=3)
    result = split(text)
    learned = [text.samples.chunk(index) for index in range(result.training)]
    judged = [text.samples.chunk(index) for index in result.judged]
    texts = ["".join(samples) for samples in (*learned, *judged)]
    assert small_text.startswith("".join(texts)), "the chunks are the text from its beginning on, in order"
    assert len(small_text) - len("".join(texts)) < max(map(len, texts)), "and less than a chunk is left out"
    assert result.held_out == round(0.05 * len(texts))
    assert {result.learned(step) for step in range(3 * result.training)} == set(range(result.training))


def test_one_chunk_is_held_out_at_least(small_text: str) -> None:
    assert split(made_up(small_text[:1000], Letters(), 400, 1)) == Split(2, 1)
    with pytest.raises(TrainerError, match=r"none is left to be held out; give more text, or less --tokens-per-chunk"):
        split(made_up(small_text[:1000], Letters(), 900, 1))


def test_bigram_baseline() -> None:
    """Against counting by hand: seen pairs, pairs not seen, and a token not seen, which is guessed by frequency."""
    random, vocabulary = np.random.default_rng(0), 6
    training = [random.integers(0, vocabulary - 1, 41).astype(np.int32) for _ in range(3)]
    held_out = [random.integers(0, vocabulary, 30).astype(np.int32) for _ in range(2)]
    counts = np.zeros((vocabulary, vocabulary))
    for ids in training:
        for before, after in pairwise(ids):
            counts[before, after] += 1
    losses, right = [], []
    for ids in held_out:
        for before, after in pairwise(ids):
            row = counts[before]
            losses.append(-log((row[after] + 1) / (row.sum() + vocabulary)))
            right.append(np.argmax(row if row.any() else counts.sum(0)) == after)
    result = bigram_baseline(training, held_out, vocabulary)
    assert result.loss == pytest.approx(np.mean(losses), rel=1e-12)
    assert result.accuracy == pytest.approx(np.mean(right), rel=1e-12)
    assert 0 < result.accuracy < 1
