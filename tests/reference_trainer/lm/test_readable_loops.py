"""`as_found.py` and `fixed.py` do exactly what the pipeline does with no fix and with every fix."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from reference_trainer.devices.host import HostDevice
from reference_trainer.devices.protocol import Device
from reference_trainer.lm.chunks import ChunkedText, Chunks
from reference_trainer.lm.loop import program
from reference_trainer.lm.model import preset
from reference_trainer.lm.observed import ObservedDevice
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.plan import Plan, plan, variant_fixes
from reference_trainer.lm.result import QUIET_CHUNKS, Result, Run, running
from tests.reference_trainer.lm import equivalence

CONFIG = preset("tiny")
WEIGHTS = equivalence.Case(CONFIG, ()).weights()
TOKENS = 120
COUNTS = ("syncs", "h2d", "d2h", "allocations", "launches")


@pytest.fixture
def text(text: ChunkedText) -> ChunkedText:
    return replace(text, tokens_per_chunk=TOKENS)


def loop(variant: str, device: Device, text: ChunkedText) -> Run:
    return program(variant, Chunks(text, batch=True), device, WEIGHTS, TOKENS)


def pipeline(device: HostDevice, text: ChunkedText, chosen: Plan) -> Run:
    source = Chunks(text, batch=True)
    return running(Pipeline(device, CONFIG, WEIGHTS, TOKENS, chosen), source, depth=2 if chosen.prefetch else 1)


def metrics(results: Iterable[Result]) -> list[tuple[int, float | None, float | None, int]]:
    return [(result.tokens, result.loss, result.accuracy, result.covers) for result in results]


def predictions(device: HostDevice, run: Callable[[Device], Run], chunks: int) -> list[np.ndarray]:
    """The predictions of each chunk on the device."""
    observed = ObservedDevice(device, CONFIG.vocabulary)
    chosen = run(cast("Device", observed))
    with observed.observing():
        return [observed.outcome().predictions for _ in chosen(iter(range(chunks)))]


def on_host(device: HostDevice, result: Result) -> np.ndarray:
    ids = result.predicted
    return np.array(ids if isinstance(ids, list) else device.download(ids)[: result.tokens])


def counted(device: HostDevice, run: Run, of: int) -> dict[str, int]:
    """What `of` further chunks ask of the device, after one that warms up."""
    results = run(itertools.count())
    next(results)
    before = device.counts()
    for _ in range(of):
        next(results)
    after = device.counts()
    return {name: getattr(after, name) - getattr(before, name) for name in COUNTS}


@pytest.mark.parametrize(("variant", "chunks"), [("as-found", 4), ("fixed", QUIET_CHUNKS), ("fixed", QUIET_CHUNKS + 3)])
def test_a_loop_is_the_pipeline_with_its_fixes(
    device: HostDevice, text: ChunkedText, variant: str, chunks: int
) -> None:
    chosen = plan(variant_fixes(variant, "host"))
    results, expected = (
        list(run(iter(range(chunks)))) for run in (loop(variant, device, text), pipeline(device, text, chosen))
    )
    assert metrics(results) == metrics(expected)
    assert sum(result.covers for result in results) == chunks * TOKENS
    ids = predictions(device, lambda observed: pipeline(observed, text, chosen), chunks)  # type: ignore[arg-type]
    for result, of_pipeline in zip(results, ids, strict=True):
        assert np.array_equal(on_host(device, result), of_pipeline)
    assert len(set(np.concatenate(ids))) > 10, "the model predicts more than one token"


def test_a_second_pass_of_a_loop_goes_on(device: HostDevice, text: ChunkedText) -> None:
    """Chunks in two passes give what they give in one: the state is carried, and all metrics are read."""
    for variant in ("as-found", "fixed"):
        once, twice = loop(variant, device, text), loop(variant, device, text)
        results = [*twice(iter(range(3))), *twice(iter(range(3, 5)))]
        for result, expected in zip(results, once(iter(range(5))), strict=True):
            assert np.array_equal(on_host(device, result), on_host(device, expected))
        assert [result.covers > 0 for result in results][2::2] == [True, True]


def test_illness_and_cure_compute_the_same(device: HostDevice, text: ChunkedText) -> None:
    ill, cured = (predictions(device, lambda way, v=v: loop(v, way, text), 3) for v in ("as-found", "fixed"))  # type: ignore[misc]
    for ids, others in zip(ill, cured, strict=True):
        assert np.count_nonzero(ids != others) <= equivalence.MOST_TIES * len(ids)


@pytest.mark.parametrize(("variant", "chunks"), [("as-found", 3), ("fixed", 2 * QUIET_CHUNKS)])
@pytest.mark.parametrize("is_observed", [False, True])
def test_they_ask_the_same_of_the_device(
    device: HostDevice, text: ChunkedText, variant: str, chunks: int, is_observed: bool
) -> None:
    """Also where some chunks before were observed: nothing of that is left."""
    way: Any = ObservedDevice(device, CONFIG.vocabulary) if is_observed else device
    run, reference = loop(variant, way, text), pipeline(device, text, plan(variant_fixes(variant, "host")))
    if is_observed:
        with way.observing():
            list(run(iter(range(2))))
    assert counted(device, run, chunks) == counted(device, reference, chunks)
