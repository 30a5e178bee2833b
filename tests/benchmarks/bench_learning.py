"""What the trainer learns of the default corpus within a minute, on held-out text, beside what bigram counts know."""

from __future__ import annotations

import os
import time
from math import log

import pytest

from reference_trainer.devices.host import HostDevice
from reference_trainer.lm.chunks import ChunkedText, Chunks
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.heldout import goal_of, split
from reference_trainer.lm.learn_chunk import LearnChunk
from reference_trainer.lm.model import ModelConfig, initial_weights
from reference_trainer.lm.optimizer import Optimizer
from reference_trainer.lm.settings import Settings
from reference_trainer.lm.tokenizer import train_or_load

SECONDS = float(os.environ.get("SECONDS", "60"))
MOST_LOSS = 0.65  # of ln V, what guessing at random costs
LEAST_ACCURACY = 1.3  # times that of bigrams


@pytest.mark.parametrize(("width", "vocabulary"), [(32, 256), (64, 1024)])
def test_held_out_text(width: int, vocabulary: int) -> None:
    config, settings, optimizer = ModelConfig(width, 2, vocabulary), Settings(), Optimizer()
    corpus = load_corpus()
    sizes = settings.tokens_per_chunk, settings.samples_per_chunk
    text = ChunkedText(corpus, train_or_load(corpus, vocabulary), *sizes)
    training, judged = split(text)
    chunks, goal = Chunks(training, batch=True), goal_of(training, judged, vocabulary)
    baseline = goal.baseline
    device = HostDevice()
    model = LearnChunk(device, config, initial_weights(config, settings.seed), settings.tokens_per_chunk)
    began, steps = time.perf_counter(), 0
    model.submit(chunks.ids(0))
    while steps < optimizer.total and time.perf_counter() - began < SECONDS:
        steps += 1
        model.submit(chunks.ids(steps))
        model.collect()
    model.collect()
    took = time.perf_counter() - began
    found = model.evaluate(goal.held_out)
    device.close()
    assert found.loss is not None
    assert found.accuracy is not None
    share, times = found.loss / log(vocabulary), found.accuracy / baseline.accuracy
    print(
        f"\nwidth {width}, vocabulary {vocabulary}, {len(training.samples)} samples learned from, "
        f"{len(judged.samples)} held out: "
        f"{steps} steps in {took:.1f} s; cross-entropy {found.loss:.3f} = {share:.3f} ln V, of bigrams "
        f"{baseline.loss:.3f}; accuracy {found.accuracy:.1%} = {times:.2f} x {baseline.accuracy:.1%} of bigrams"
    )
    assert share <= MOST_LOSS
    assert times >= LEAST_ACCURACY
