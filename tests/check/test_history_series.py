"""Series of a history: which results they join, and where their levels changed."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.analyse.statistics import ALPHA, level_shifts
from profiler.check.outputs.history import Entry, HistoryBounds, HistorySeries, all_series

MACHINE = {"cpu": "A", "cores": "2"}


def counted(*values: float | tuple[float, float]) -> HistorySeries:
    ends = [value if isinstance(value, tuple) else (value, value) for value in values]
    return all_series([Entry("t", "PASS", counters={"syncs": one}) for one in ends])[0]


def timed(values: np.ndarray, machine: dict[str, str] = MACHINE) -> list[Entry]:
    return [Entry(f"t{k}", "PASS", step_time=float(value), machine=machine) for k, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((2, 2, 3), [(2, 2, 3)]),
        ((2, 3, 3), [(1, 2, 3)]),
        ((2, 2, 2, 1, 1), [(3, 2, 1)]),
        ((2, 2, 3, 2, 2), [(2, 2, 3), (3, 3, 2)]),
        ((2, 3), []),
        ((2,), []),
        ((2, 2), []),
        ((2, 3, 2, 3, 2, 3, 2, 3), []),
        (((2, 3), (3, 3), (2, 2), (2, 3)), []),
        (((2, 3), (2, 2), (4, 5), (4, 4)), [(2, 2, 4.5)]),
    ],
)
def test_counters_are_exact(values: tuple[float, ...], expected: list[tuple[int, float, float]]) -> None:
    changes = counted(*values).changes
    assert [(change.at, change.before, change.after) for change in changes] == expected
    assert all(change.p is None for change in changes)


def test_a_counter_that_never_rests_is_tested_as_noise() -> None:
    random = np.random.default_rng(1)
    noise = random.integers(10, 13, 60)
    assert counted(*noise.tolist()).changes == ()
    noise[40:] += 5
    (change,) = counted(*noise.tolist()).changes
    assert change.at == 40
    assert change.p is not None


def test_a_slower_level_is_found_where_it_begins() -> None:
    random = np.random.default_rng(2)
    values = 0.05 * np.exp(0.01 * random.standard_t(3, 60))
    values[35:] *= 1.05
    (series,) = all_series(timed(values))
    (change,) = series.changes
    assert (series.name, series.unit) == ("step time", "s")
    assert abs(change.at - 35) <= 2, change
    assert change.after / change.before == pytest.approx(1.05, abs=0.01)
    assert change.p is not None
    assert change.p <= ALPHA


def test_a_change_that_no_check_could_see_is_left_out() -> None:
    random = np.random.default_rng(5)
    values = 0.05 * np.exp(0.0002 * random.normal(size=60))
    values[30:] *= 1.005
    assert len(level_shifts(values)) == 1
    assert all_series(timed(values))[0].changes == ()


def test_machines_and_programs_are_kept_apart() -> None:
    slow, fast = timed(np.full(8, 0.1)), timed(np.full(8, 0.05), {"cpu": "B", "cores": "8"})
    mixed = [entry for pair in zip(slow, fast, strict=True) for entry in pair]
    first, second = all_series(mixed)
    assert (first.machine, second.machine) == ("B, 8 cores", "A, 2 cores"), "that of the last result comes first"
    assert first.changes == second.changes == ()
    assert set(second.values) == {0.1}
    installed = [*timed(np.full(8, 0.1)), *timed(np.full(8, 0.2), MACHINE | {"torch": "3.0"})]
    (series,) = all_series(installed)
    assert [change.at for change in series.changes] == [8], "what another torch does to times is to be seen"
    one = Entry("t", "PASS", counters={"syncs": (1.0, 1.0)}, command="a")
    other = Entry("t", "PASS", counters={"syncs": (9.0, 9.0)}, command="b")
    assert all(not series.changes for series in all_series([one, one, other, other]))


def test_slow_downs_are_of_any_machine() -> None:
    entries = [
        Entry("t", "PASS", slowdowns={"typical step": HistoryBounds(0.01, 0.0, 0.02, 7)}, machine={"cpu": c})
        for c in "ab"
    ]
    (series,) = all_series(entries)
    assert (series.name, series.unit, series.machine) == ("slow-down, typical step", "share", "")
    assert series.values == (0.01, 0.01)
    assert all_series(()) == ()
