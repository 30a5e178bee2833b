"""What changed between two breakdown passes whose steps are known in phases: one of them, several, or all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import HostState, IdleBlame, SiteOrigin
from profiler.analyse.model.host import LineCost, Phase
from profiler.analyse.model.ledger import MAIN, Cell, Ledger, Owner, Period, Recurrence
from profiler.analyse.model.measures import Measure
from profiler.diagnose.comparison import grown, largest_change
from profiler.diagnose.model import TimeChange, TimeChangeKind
from profiler.run.model import RunInfo, Site


def steps(*, lines: bool = False, **ms: float) -> Analysis:
    """A step of these phases; phase i lies at train.py:i, which takes 90% of it."""
    total = sum(ms.values()) / 1000
    phases = tuple(
        Phase(name.replace("_", " "), part / 1000, part / 1000 / total, 0.0, 1.0, Site("train.py", line, "main"))
        for line, (name, part) in enumerate(ms.items(), 1)
    )
    step = {"step_time": Measure("step_time", total, "s"), "steps_per_s": Measure("steps_per_s", 1 / total, "steps/s")}
    costs = tuple(
        LineCost(phase.site, "", 0.9 * phase.seconds_per_step, 0.9 * phase.share, 0.0, 1.0, 100)
        for phase in phases
        if lines and phase.site
    )
    info = RunInfo(1, "r", "r", ("x",), facts={"device": "cpu"})
    return Analysis(info, step, {}, {}, phases=phases, lines=costs)


def with_ledger(step_ms: float, *entries: tuple[int, str, float]) -> Analysis:
    """A run of 10 steps, with the ms of a step at each line and in each package, known within 10%."""
    cells = []
    for line, package, ms in entries:
        seconds = 10 * ms / 1000
        ends = (seconds, 0.9 * seconds, 1.1 * seconds, 50.0)
        place, owner = Site("train.py", line, "main"), Owner.LIBRARY if package else Owner.USER
        cells.append(Cell(0, MAIN, Period.STEPS, "", "python", owner, package, place, "", Recurrence.EACH, 0.0, *ends))
    run = steps(forward=step_ms)
    return replace(run, ledger=Ledger(tuple(cells), steps={MAIN: 10}))


def test_what_grew_by_much_and_more_than_chance_is_named_by_line_and_package() -> None:
    before = with_ledger(10, (1, "", 4.0), (1, "numpy", 2.0), (2, "torch", 3.0), (3, "", 0.2))
    after = with_ledger(20, (1, "", 4.5), (1, "numpy", 9.0), (2, "torch", 2.0), (3, "", 0.9), (4, "new", 3.0))
    found = [(each.site, each.package, each.before, each.after) for each in grown(before, after)]
    assert [(site and site.line, package) for site, package, *_ in found] == [(1, "numpy"), (4, "new")]
    assert [round(1000 * seconds, 6) for *_, earlier, later in found for seconds in (earlier, later)] == [2, 9, 0, 3]
    assert grown(steps(forward=1), after) == grown(before, steps(forward=1)) == ()


def change(before: Analysis, after: Analysis, *, faster: bool = False) -> TimeChange:
    largest = largest_change(before, after, faster=faster)
    assert largest is not None
    return largest


def listed(largest: TimeChange) -> list[tuple[str, float, int]]:
    return [(one.phase, round(1000 * one.seconds, 2), one.site.line if one.site else 0) for one in largest.phases]


SIX_LAYERS = steps(forward=5.2, backward=7.3, optimizer=8.2, elsewhere=0.1)
NINE_LAYERS = steps(forward=8.2, backward=11.7, optimizer=14.6, elsewhere=0.1)


@pytest.mark.parametrize("faster", [True, False])
def test_one_phase_with_the_line_of_the_slow_side(faster: bool) -> None:
    slow, fast = steps(forward=20, elsewhere=2, lines=True), steps(elsewhere=3, forward=2, lines=True)
    largest = change(slow, fast, faster=True) if faster else change(fast, slow)
    assert (largest.kind, largest.name, largest.faster, largest.is_cause) == (
        TimeChangeKind.PHASE,
        "forward",
        faster,
        True,
    )
    assert (largest.before, largest.after) == ((0.02, 0.002) if faster else (0.002, 0.02))
    assert largest.site == Site("train.py", 1, "main")
    assert largest.site_seconds == pytest.approx(0.018)


def test_time_that_nothing_explains_is_no_cause() -> None:
    largest = change(steps(forward=2, elsewhere=20), steps(forward=2, elsewhere=1), faster=True)
    assert (largest.name, largest.is_cause) == ("elsewhere", False)


def test_code_between_the_phases_is_named_by_its_category_with_the_line_that_has_most_of_it() -> None:
    slow, fast = steps(forward=2, elsewhere=20, lines=True), steps(forward=2, elsewhere=1, lines=True)
    slow, fast = (
        replace(side, breakdown={"checkpoint": Measure("checkpoint", ms / 1000, "s")})
        for side, ms in ((slow, 18), (fast, 0))
    )
    slow = replace(slow, lines=tuple(replace(line, categories={"checkpoint": 0.017}) for line in slow.lines[1:]))
    largest = change(fast, slow)
    assert (largest.kind, largest.name, largest.is_cause) == (TimeChangeKind.HOST, "checkpoint", True)
    assert (largest.before, largest.after, largest.site) == (0.0, 0.018, Site("train.py", 2, "main"))


@pytest.mark.parametrize("faster", [True, False])
def test_where_all_phases_changed_no_line_is_to_blame(faster: bool) -> None:
    largest = change(NINE_LAYERS, SIX_LAYERS, faster=True) if faster else change(SIX_LAYERS, NINE_LAYERS)
    sign = -1 if faster else 1
    assert (largest.kind, largest.is_cause) == (TimeChangeKind.ALL_PHASES, False)
    assert listed(largest) == [("optimizer", sign * 6.4, 0), ("backward", sign * 4.4, 0), ("forward", sign * 3.0, 0)]
    assert largest.step_seconds == pytest.approx(sign * 0.0138)


def test_several_phases_have_their_lines_and_are_a_cause() -> None:
    largest = change(steps(data=1, forward=5, backward=10), steps(data=5, forward=8, backward=10))
    assert (largest.kind, largest.is_cause) == (TimeChangeKind.SEVERAL_PHASES, True)
    assert listed(largest) == [("data", 4.0, 1), ("forward", 3.0, 2)]


@pytest.mark.parametrize(("optimizer", "kind"), [(16.1, TimeChangeKind.PHASE), (15.9, TimeChangeKind.ALL_PHASES)])
def test_a_phase_is_named_alone_where_it_makes_up_most(optimizer: float, kind: TimeChangeKind) -> None:
    """6.1 of 10.1 ms, and 5.9 of 9.9 ms."""
    before, after = steps(forward=10, backward=10, optimizer=10), steps(forward=12, backward=12, optimizer=optimizer)
    assert change(before, after).kind is change(after, before, faster=True).kind is kind


def test_phases_that_went_the_other_way_leave_no_phase_alone() -> None:
    """Either of two phases is more than the difference, as a third one made up for much of them."""
    largest = change(steps(data=20, forward=10, backward=10), steps(data=8, forward=20, backward=18))
    assert (largest.kind, largest.is_cause) == (TimeChangeKind.SEVERAL_PHASES, True)
    assert listed(largest) == [("forward", 10.0, 2), ("backward", 8.0, 3)]
    assert [(one.phase, round(1000 * one.seconds)) for one in largest.against] == [("data", -12)]


def test_at_most_three_are_listed_and_small_ones_not() -> None:
    before = steps(data=10, forward=10, backward=10, optimizer=10, after_the_optimizer=10)
    largest = change(before, steps(data=15, forward=16, backward=17, optimizer=18, after_the_optimizer=19))
    assert [one.phase for one in largest.phases] == ["after the optimizer", "optimizer", "backward"]
    largest = change(before, steps(data=15, forward=16, backward=10.5, optimizer=10, after_the_optimizer=10))
    assert [one.phase for one in largest.phases] == ["forward", "data"]


def test_several_of_which_most_is_unexplained_are_no_cause() -> None:
    largest = change(steps(forward=10, backward=10, elsewhere=10), steps(forward=15, backward=10, elsewhere=15))
    assert (largest.kind, largest.is_cause) == (TimeChangeKind.SEVERAL_PHASES, False)


def test_passes_that_went_the_other_way_have_no_list() -> None:
    largest = change(steps(forward=10, backward=10, data=10), steps(forward=14, backward=13, data=2))
    assert (largest.kind, largest.name, largest.is_cause) == (TimeChangeKind.PHASE, "forward", False)


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "expected"),
    [(4, 10, ("host", "core", True)), (4, 6, ("several-phases", "", True)), (0, 3.9, ("several-phases", "", True))],
)
def test_waits_for_a_core_are_the_change_where_they_exceed_every_phase(
    before_ms: float, after_ms: float, expected: tuple[str, str, bool]
) -> None:
    before, after = steps(forward=10, backward=10, optimizer=10), steps(forward=14, backward=13.9, optimizer=10)
    before, after = (
        replace(side, breakdown={"core": Measure("core", ms / 1000, "s")})
        for side, ms in ((before, before_ms), (after, after_ms))
    )
    for largest in (change(before, after), change(after, before, faster=True)):
        assert (largest.kind, largest.name, largest.is_cause) == expected


@pytest.mark.parametrize(
    ("device", "before", "after", "expected"),
    [
        ("cpu", {"input": 80, "python": 20}, {"input": 10, "python": 20}, ("input", True, True, 0.8, 0.333)),
        ("cpu", {"unattributed": 80, "python": 20}, {"python": 20}, ("unattributed", False, True, 0.8, 0.0)),
        # shares that read alike: seconds
        ("cpu", {"input": 80, "python": 20}, {"input": 78, "python": 20}, ("input", True, False, 0.08, 0.078)),
        ("cuda", {"python": 80, "log": 20}, {"python": 10, "log": 20}, None),  # Python may be a wait inside CUDA
        ("cpu", {}, {"python": 20}, None),
        # a 0 that nothing measured
        ("cpu", {"python": 87, "compute": 13}, {"compute": 13, "unattributed": 8}, None),
        ("cpu", {"core": 80, "python": 20}, {"python": 20}, None),
    ],
)
def test_without_idle_time_the_host_is_compared_by_category(
    device: str, before: dict[str, float], after: dict[str, float], expected: tuple[Any, ...] | None
) -> None:
    runs = [
        Analysis(
            RunInfo(1, "r", "r", ("x",), facts={"device": device}),
            {"step_time": Measure("step_time", (sum(parts.values()) or 100) / 1000, "s")},
            {name: Measure(name, ms / 1000, "s") for name, ms in parts.items()},
            {},
        )
        for parts in (before, after)
    ]
    largest = largest_change(*runs, faster=True)
    assert (largest is None) is (expected is None)
    if largest is not None:
        amounts = round(largest.before, 3), round(largest.after, 3)
        assert (largest.name, largest.is_cause, largest.as_shares, *amounts) == expected
        assert (largest.kind, largest.site) == (TimeChangeKind.HOST, None)


def test_idle_time_is_blamed_on_the_function_with_most_of_it() -> None:
    """Not on the line with most of it, whose function may have less: a page sums by function."""
    shares = {("loss", 43): 0.2, ("decode", 54): 0.15, ("decode", 55): 0.12}
    rows = tuple(
        IdleBlame(
            HostState.IN_CALL, "launch", SiteOrigin.ITSELF, "launch", Site("t.py", line, function), share, share, 1.0
        )
        for (function, line), share in shares.items()
    )
    step = {"step_time": Measure("step_time", 1.0, "s")}
    idle = {"idle": Measure("idle", 0.47, "s")}
    before = Analysis(RunInfo(1, "r", "r", ("x",)), step, {}, idle, idle=rows)
    after = Analysis(
        RunInfo(1, "r", "r", ("x",)),
        {"step_time": Measure("step_time", 0.5, "s")},
        {},
        {"idle": Measure("idle", 0.0, "s")},
    )
    assert change(before, after, faster=True).site == Site("t.py", 54, "decode")
