"""Steps with work that occurs once are set apart: what they cost has seconds, and neither a rate nor a gain."""

from __future__ import annotations

import pytest

from profiler import analyse_run
from profiler.analyse.analysis import analyse
from profiler.analyse.model.analysis import Analysis
from profiler.run.tables import GARBAGE_COLLECTION, StageKind
from tests.recorded.builders import MS, RunBuilder

STEP = ("train.py:50:<module>", "train.py:10:step")
IMPORT = (
    *STEP,
    "<frozen importlib._bootstrap>:1176:_find_and_load",
    "/usr/lib/python3.11/site-packages/scipy/__init__.py:3:<module>",
)
FIGURE = (*STEP, "train.py:30:draw")
USUAL_MS = 10.0
SAMPLE = 10 * MS


def recorded(extra: dict[int, tuple[tuple[str, ...], float]], count: int = 30, **options: object) -> RunBuilder:
    """Steps of 10 ms, of which some do more work."""
    builder = RunBuilder(device="cpu", **options)
    now = 0
    for number in range(count):
        begin = now
        for frames, ms in ((STEP, USUAL_MS), extra.get(number, (STEP, 0.0))):
            for _ in range(round(ms / USUAL_MS)):
                builder.stack(frames, now, now + SAMPLE)
                now += SAMPLE
        builder.step(begin, now)
    builder.sample("stacks.period_s", now, 0.01)
    return builder


def analysed(builder: RunBuilder) -> Analysis:
    return analyse(builder.build())


def test_a_step_that_imports_a_library_is_set_apart() -> None:
    analysis = analysed(recorded({12: (IMPORT, 400.0)}))
    found = analysis.one_offs
    assert analysis.value("step_time") == pytest.approx(0.01)
    assert analysis.value("steps") == 29
    assert (found.count, found.times) == (1, pytest.approx(41.0))
    assert found.seconds == pytest.approx(0.4)
    assert [(line.site.line, line.imports) for line in found.lines] == [(10, "scipy")]
    assert analysis.spikes is None


def test_it_is_told_in_seconds_without_a_gain() -> None:
    analysis = analyse_run(recorded({12: (IMPORT, 400.0)}).build())
    (finding,) = [each for each in analysis.findings if each.rule.name == "one-off-work"]
    assert finding.is_of_run
    assert not finding.gains
    assert finding.seconds == pytest.approx(0.4)
    assert finding.sites[0].line == 10
    assert "A cost that occurs once: 400 ms in 1 step at train.py:10" in analysis.verdict


@pytest.mark.parametrize(
    ("extra", "count"),
    [
        pytest.param(dict.fromkeys((5, 12, 19), (FIGURE, 400.0)), 30, id="three times"),
        pytest.param({12: (FIGURE, 80.0)}, 30, id="less than a tenth of a second"),
        pytest.param({2: (FIGURE, 400.0)}, 3, id="three steps"),
        pytest.param({700: (FIGURE, 400.0)}, 1000, id="less than 5% of all steps"),
    ],
)
def test_other_long_steps_stay(extra: dict[int, tuple[tuple[str, ...], float]], count: int) -> None:
    analysis = analysed(recorded(extra, count))
    assert analysis.one_offs is None
    assert analysis.value("steps") == count


def test_two_steps_are_set_apart_beside_work_that_recurs() -> None:
    extra = dict.fromkeys(range(4, 60, 10), (FIGURE, 30.0)) | {12: (IMPORT, 600.0), 33: (IMPORT, 500.0)}
    analysis = analysed(recorded(extra, 60))
    assert analysis.one_offs.count == 2
    assert (analysis.spikes.count, analysis.spikes.every) == (6, 10)


def test_an_evaluation_that_is_seen_once_recurs() -> None:
    builder = recorded({12: (FIGURE, 400.0)})
    begin = round(13 * USUAL_MS * MS)
    builder.stage(StageKind.EVAL_MODE, begin, object_id=7)
    builder.stage(StageKind.TRAIN_MODE, begin + 399 * MS, object_id=7)
    builder.stage(StageKind.NO_GRAD, begin, begin + 399 * MS)
    assert analysed(builder).one_offs is None


def test_a_collection_of_garbage_that_occurs_once_is_told_as_such() -> None:
    builder = recorded({12: (STEP, 400.0)})
    builder.region(GARBAGE_COLLECTION, round(13 * USUAL_MS * MS), round(13 * USUAL_MS * MS) + 390 * MS)
    assert analysed(builder).one_offs.stage == GARBAGE_COLLECTION


def test_long_collections_that_recur_in_the_run_are_no_one_offs() -> None:
    builder = recorded({12: (STEP, 400.0)})
    for begin in (round(13 * USUAL_MS * MS), 3_000 * MS, 4_000 * MS):
        builder.region(GARBAGE_COLLECTION, begin, begin + 390 * MS)
    assert analysed(builder).one_offs is None


def test_long_collections_of_one_step_are_a_part_of_its_work() -> None:
    builder = recorded({12: (IMPORT, 800.0)})
    for part in range(4):
        begin = round(13 * USUAL_MS * MS) + 200 * part * MS
        builder.region(GARBAGE_COLLECTION, begin, begin + 150 * MS)
    assert analysed(builder).one_offs.count == 1


def test_recurring_work_beside_one_large_step_is_measured() -> None:
    extra = dict.fromkeys(range(4, 30, 5), (FIGURE, 600.0)) | {12: (IMPORT, 5_000.0)}
    analysis = analysed(recorded(extra))
    assert (analysis.one_offs.count, round(analysis.one_offs.seconds, 1)) == (1, 5.0)
    assert (analysis.spikes.count, analysis.spikes.every) == (6, 5)


def ranks(long: dict[int, set[int]], count: int = 30) -> RunBuilder:
    """Ranks whose steps end together, of which some work for longer in some steps."""
    builder, now = RunBuilder(device="cpu", world_size=len(long)), 0
    for number in range(count):
        waits = any(number in steps for steps in long.values())
        for rank, own_steps in long.items():
            pid = 100 + rank
            own = 400 if number in own_steps else 10
            builder.stack(FIGURE if own > 10 else STEP, now, now + own * MS, pid=pid, tid=pid)
            builder.step(now, now + (400 if waits else 10) * MS, pid=pid, tid=pid, rank=rank, index=number)
        now += (400 if waits else 10) * MS
    builder.sample("stacks.period_s", now, 0.01)
    return builder


def test_a_step_is_set_apart_on_all_ranks() -> None:
    analysis = analysed(ranks({0: set(), 1: {12}}))
    assert analysis.value("steps") == 29
    assert analysis.one_offs.count == 1


def test_long_steps_of_many_ranks_are_no_one_offs() -> None:
    assert analysed(ranks({0: {3, 9}, 1: {12, 17}})).one_offs is None


def test_steps_of_a_light_run_are_all_measured() -> None:
    assert analysed(recorded({12: (IMPORT, 400.0)}, level="light")).value("steps") == 30
