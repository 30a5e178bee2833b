"""The model never learns from the held-out text, and n-grams are counted in the text that it learns from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.lm import heldout
from reference_trainer.lm.chunks import ChunkedText
from reference_trainer.lm.heldout import ORDER, NgramModel, goal_of, read_ids, split
from tests.reference_trainer.lm.sources import Letters, made_up


def test_the_last_samples_are_held_out(text: ChunkedText, small_text: str) -> None:
    text = replace(text, tokens_per_chunk=500, samples_per_chunk=3)
    training, held_out = split(text)
    assert "".join((*training.samples, *held_out.samples)) == small_text, "nothing is left out"
    assert held_out.samples.groups == round(0.05 * text.samples.groups)
    assert training.samples.groups + held_out.samples.groups == text.samples.groups
    assert len(training.samples) % 3 == 0


def test_every_token_of_the_held_out_text_is_judged_once(text: ChunkedText, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last chunk may be shorter; of a large text, the first part is judged."""
    training, held_out = split(text)
    tokens = read_ids(held_out, 10**9)
    goal = goal_of(training, held_out, 256)
    assert [len(ids) - 1 for ids in goal.held_out[:-1]] == [400] * (len(goal.held_out) - 1)
    assert np.array_equal(np.concatenate([ids[1:] for ids in goal.held_out]), tokens[1:])
    monkeypatch.setattr(heldout, "JUDGED_TOKENS", 700)
    monkeypatch.setattr(heldout, "COUNTED_TOKENS", 900)
    short = goal_of(training, held_out, 256)
    assert np.array_equal(np.concatenate([ids[1:] for ids in short.held_out]), tokens[1:700])
    counted = NgramModel(read_ids(training, 10**9)[:900], 256, ORDER).evaluate(tokens[:700])
    assert short.counts == tuple(counted[1:])
    assert [model.name for model in short.counts] == ["2-gram counts", "3-gram counts", "4-gram counts"]


def test_one_group_is_held_out_at_least(small_text: str) -> None:
    training, held_out = split(made_up(small_text[:1000], Letters(), 600, 1))
    assert (len(training.samples), len(held_out.samples)) == (1, 1)
    with pytest.raises(TrainerError, match=r"none is left to be held out; give more text, or less --tokens-per-chunk"):
        split(made_up(small_text[:1000], Letters(), 1000, 1))
