"""As found, cured, and every step of the ladder compute the same as plain PyTorch does, and carry their state alike."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from reference_trainer.devices import cuda, open_device
from reference_trainer.devices.host import HostDevice
from reference_trainer.devices.protocol import Device
from reference_trainer.lm.pipeline import QUIET_CHUNKS, Pipeline
from reference_trainer.lm.plan import Plan, fixes, plan, variant_fixes
from reference_trainer.lm.stages import Work
from tests.reference_trainer.lm import equivalence
from tests.reference_trainer.lm.reference import ReferenceModel

DEVICES = ["host", pytest.param("cuda", marks=pytest.mark.gpu)]
FIXED = variant_fixes("fixed", "host")
LOUD = tuple(name for name in FIXED if name != "quiet-logging")


@pytest.fixture(params=DEVICES, scope="module")
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    if request.param == "cuda" and (reason := cuda.unavailable()):
        pytest.skip(reason)
    opened = open_device(request.param)
    yield opened
    opened.close()


def closure(name: str) -> tuple[str, ...]:
    """The fix with all that it requires."""
    needed = [another for required in fixes()[name].requires for another in closure(required)]
    return tuple(dict.fromkeys((*needed, name)))


def without(name: str) -> tuple[str, ...]:
    """All cures but this one and those that require it."""
    return tuple(another for another in FIXED if name not in closure(another))


LADDER = {
    **{f"up to {name}": FIXED[: number + 1] for number, name in enumerate(FIXED)},
    **{f"only {name}": closure(name) for name in FIXED},
    **{f"without {name}": without(name) for name in FIXED},
}
PLANS = {"+".join(chosen): plan(chosen) for chosen in LADDER.values()}


@pytest.mark.parametrize("chosen", PLANS.values(), ids=PLANS.keys())
def test_every_step_of_the_ladder(device: Device, chosen: Plan) -> None:
    equivalence.run(device, equivalence.Case(equivalence.TINY, (33, 1, 17, 40), seed=1), chosen)


@pytest.mark.parametrize("chosen", [Plan(), plan(FIXED)], ids=["as-found", "fixed"])
@pytest.mark.parametrize("case", equivalence.CASES.values(), ids=equivalence.CASES.keys())
def test_the_same_as_plain_pytorch(device: Device, case: equivalence.Case, chosen: Plan) -> None:
    equivalence.run(device, case, chosen)


@pytest.mark.parametrize("reused", [False, True])
def test_memory_is_reused_where_the_plan_says(reused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case, opened = equivalence.CASES["tiny"], HostDevice()
    work = Work(opened, case.config, case.weights(), 8, Plan(pooled=reused, zero_copy=reused))
    upload, array = work.uploader((1,)), np.zeros(1, np.float32)
    for give in (work.memory((2,)), work.host_memory((2,)), lambda: upload(array)):
        first, second = give(), give()
        assert (first is second) == reused
    caller = lambda *_: sys._getframe(1).f_code  # noqa: E731
    monkeypatch.setattr(HostDevice, "upload_into" if reused else "upload", caller)
    assert work.uploader((1,))(array) is sys._getframe().f_code, "recordings attribute an upload to the stage's line"
    opened.close()


def test_two_chunks_in_flight_give_what_one_at_a_time_gives(device: Device) -> None:
    """Staged ids, fetched metrics and graphs are each used again two chunks later: too early would show here."""
    ways = [plan(name for name in LOUD if name != "prefetch"), plan(LOUD)]
    if device.kind == "cuda":
        ways.append(plan([*LOUD, "cuda-graph"]))
    random, tokens = np.random.default_rng(5), 150
    chunks = [random.integers(0, equivalence.TINY.vocabulary, tokens + 1).astype(np.int32) for _ in range(12)]
    weights = equivalence.CASES["tiny"].weights()
    result = [in_flight(Pipeline(device, equivalence.TINY, weights, tokens, way), chunks, way) for way in ways]
    assert all(losses == result[0] for losses in result[1:])
    assert len(set(result[0])) > 1


def in_flight(tested: Pipeline, chunks: list[np.ndarray], way: Plan) -> list[float]:
    """The loss of every chunk, with one more in flight where the plan prefetches."""
    losses: list[float] = []
    ahead = 2 if way.prefetch else 1
    for number, ids in enumerate(chunks, 1):
        tested.submit(ids)
        if number >= ahead:
            losses.append(tested.collect().loss)
    while len(losses) < len(chunks):
        losses.append(tested.collect().loss)
    return losses


def test_the_modulator_matters() -> None:
    """A forward pass that forgot it would pass no test above: without it the reference predicts otherwise."""
    case = equivalence.CASES["tiny"]
    weights, chunks = case.weights(), case.chunks()
    with_it, without_it = ReferenceModel(case.config, weights), ReferenceModel(case.config, weights)
    different = 0
    for ids in chunks:
        without_it.modulator = 0.0
        different += int(np.sum(with_it.chunk(ids).predictions != without_it.chunk(ids).predictions))
    assert different > 0


def counted(names: tuple[str, ...], chunks: int = 3) -> dict[str, float]:
    """What each chunk of 150 tokens asks of the device, after one to warm up."""
    case, opened = equivalence.CASES["tiny"], HostDevice()
    tested = Pipeline(opened, case.config, case.weights(), 150, plan(names))
    ids = case.chunks()[0]
    tested.submit(ids)
    tested.collect()
    before = opened.counts()
    for _ in range(chunks):
        tested.submit(ids)
        tested.collect()
    after = opened.counts()
    opened.close()
    requested = ("syncs", "h2d", "d2h", "allocations", "launches")
    return {name: (getattr(after, name) - getattr(before, name)) / chunks for name in requested}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), {"syncs": 300, "h2d": 450, "d2h": 300, "allocations": 750, "launches": 451}),
        (LOUD, {"syncs": 1, "h2d": 1, "d2h": 1, "allocations": 0, "launches": 1 + 2 * equivalence.TINY.layers + 2 + 2}),
        # each cure alone removes what it says
        (("async",), {"syncs": 1}),
        (("batch-embed",), {"h2d": 301}),
        (("batch-recurrence",), {"launches": 2 * 2 + 1 + 301}),
        (("batch-decode",), {"launches": 150 + 2 + 1 + 1}),
        (("device-loss",), {"d2h": 151}),
        (("pooled",), {"allocations": 0}),
    ],
)
def test_what_a_chunk_asks_of_the_device(names: tuple[str, ...], expected: dict[str, int]) -> None:
    assert expected.items() <= counted(names).items()


def test_quiet_logging_reads_the_metrics_now_and_then() -> None:
    a_chunk = counted(FIXED, chunks=2 * QUIET_CHUNKS)
    assert a_chunk["d2h"] == 1 / QUIET_CHUNKS
    assert a_chunk["syncs"] == 1, "the host still keeps in step with the device"


def test_a_chunk_can_begin_while_the_host_does_something_else() -> None:
    """submit() of the whole chunk is one upload and launches, no sync; collect() is the one sync."""
    case = equivalence.CASES["tiny"]
    opened = HostDevice()
    tested = Pipeline(opened, case.config, case.weights(), 150, plan(FIXED))
    ids = case.chunks()[0]
    counts = [opened.counts()]
    for call in (lambda: tested.submit(ids), lambda: tested.submit(ids), tested.collect):
        call()
        counts.append(opened.counts())
    tested.submit(ids)
    with pytest.raises(RuntimeError, match="in flight"):
        tested.submit(ids)
    opened.close()
    syncs = [after.syncs - before.syncs for before, after in pairwise(counts)]
    assert syncs == [0, 0, 1]
