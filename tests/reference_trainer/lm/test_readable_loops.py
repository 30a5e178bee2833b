"""`as_found.py` and `fixed.py` do exactly what the pipeline does with no fix and with every fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reference_trainer.devices.host import HostDevice
from reference_trainer.lm import as_found, fixed
from reference_trainer.lm.chunks import ChunkedText, Chunks
from reference_trainer.lm.model import preset
from reference_trainer.lm.pipeline import QUIET_CHUNKS, Pipeline
from reference_trainer.lm.plan import Plan, plan, variant_fixes
from tests.reference_trainer.lm import equivalence

CONFIG = preset("tiny")
WEIGHTS = equivalence.Case(CONFIG, ()).weights()
TOKENS = 120
COUNTS = ("syncs", "h2d", "d2h", "allocations", "launches")


@pytest.fixture
def text(text: ChunkedText) -> ChunkedText:
    return replace(text, tokens_per_chunk=TOKENS)


def with_pipeline(
    device: HostDevice, text: ChunkedText, chosen: Plan, chunks: int
) -> tuple[list[Any], list[np.ndarray]]:
    """Losses of the chunks (of those read together: once), and their predictions."""
    source = Chunks(text, batch=True)
    pipeline = Pipeline(device, CONFIG, WEIGHTS, TOKENS, chosen)
    losses, predictions = [], []
    for number in range(chunks):
        pipeline.submit(source.ids(number))
        losses.append(pipeline.collect().loss)
        predictions.append(pipeline.predictions())
    unread = pipeline.flush()
    losses.append(unread.loss if unread else None)
    return [loss for loss in losses if loss is not None], predictions


def loop(train: Callable[..., Iterator[Any]], device: HostDevice, text: ChunkedText, chunks: int) -> Iterator[Any]:
    return train(text, device, CONFIG, WEIGHTS, chunks=chunks)


def counted(device: HostDevice, steps: Iterator[Any], of: int) -> dict[str, int]:
    """What `of` further steps ask of the device, after one that warms up."""
    next(steps)
    before = device.counts()
    for _ in range(of):
        next(steps)
    after = device.counts()
    return {name: getattr(after, name) - getattr(before, name) for name in COUNTS}


def pipeline_steps(device: HostDevice, text: ChunkedText, chosen: Plan) -> Iterator[int]:
    """The pipeline's chunks, as the training loop submits and collects them."""
    source = Chunks(text, batch=True)
    pipeline = Pipeline(device, CONFIG, WEIGHTS, TOKENS, chosen)
    for number in range(100):
        pipeline.submit(source.ids(number))
        if not chosen.prefetch or number:
            pipeline.collect()
        yield number


def test_as_found_is_the_pipeline_without_fixes(device: HostDevice, text: ChunkedText) -> None:
    expected_losses, expected = with_pipeline(device, text, Plan(), 4)
    losses, predictions = zip(*loop(as_found.train, device, text, 4), strict=True)
    assert list(losses) == expected_losses
    assert all(np.array_equal(ids, another) for ids, another in zip(predictions, expected, strict=True))
    assert len({ids for chunk in predictions for ids in chunk}) > 10, "the model predicts more than one token"


def test_fixed_is_the_pipeline_with_every_fix(device: HostDevice, text: ChunkedText) -> None:
    chunks = QUIET_CHUNKS + 3
    expected_losses, expected = with_pipeline(device, text, plan(variant_fixes("fixed", "host")), chunks)
    losses, predictions = [], []
    for number, (loss, prediction) in enumerate(loop(fixed.train, device, text, chunks)):
        losses.append(loss)
        if number < chunks:
            predictions.append(device.download(prediction)[: len(expected[number])])
    assert [loss for loss in losses if loss is not None] == expected_losses
    assert len(expected_losses) == 2
    assert all(np.array_equal(ids, another) for ids, another in zip(predictions, expected, strict=True))


def test_illness_and_cure_compute_the_same(device: HostDevice, text: ChunkedText) -> None:
    ill, cured = (loop(module.train, device, text, 3) for module in (as_found, fixed))
    for (_, ids), (_, prediction) in zip(ill, cured, strict=False):
        different = np.count_nonzero(device.download(prediction)[: len(ids)] != ids)
        assert different <= equivalence.MOST_TIES * len(ids)


@pytest.mark.parametrize(
    ("train", "fixes", "chunks"),
    [(as_found.train, (), 3), (fixed.train, variant_fixes("fixed", "host"), 2 * QUIET_CHUNKS)],
    ids=["as-found", "fixed"],
)
def test_they_ask_the_same_of_the_device(
    device: HostDevice, text: ChunkedText, train: Callable[..., Iterator[Any]], fixes: tuple[str, ...], chunks: int
) -> None:
    steps, reference = loop(train, device, text, 100), pipeline_steps(device, text, plan(fixes))
    assert counted(device, steps, chunks) == counted(device, reference, chunks)
