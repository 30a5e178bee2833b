"""Counters of two sides: exact where the base is constant, by range where it varies, and never silent."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from profiler.check.counters.compare import (
    GATED,
    budget_lines,
    budget_warnings,
    changed_lines,
    compare,
    overall,
    unused_limits,
)
from profiler.check.diff import FileChange, compare_texts
from profiler.check.model import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    Budget,
    Change,
    Counted,
    CountedLine,
    CounterLine,
    GateResult,
    Limit,
    Limits,
)
from profiler.core.errors import Notice, ProfilerError
from tests.fakes.counting import at, lines_of, one, two

NONE = Limits()


def line(base: tuple[Counted, ...], candidate: tuple[Counted, ...], limits: Limits = NONE) -> CounterLine:
    """The line of sides that have one counter."""
    (found,) = compare(base, candidate, limits)
    return found


def states(base: tuple[Counted, ...], candidate: tuple[Counted, ...], limits: Limits = NONE) -> dict[str, str]:
    return {found.counter: found.state for found in compare(base, candidate, limits)}


def codes(found: CounterLine) -> list[str]:
    return [reason.code for reason in found.reasons]


def syncs(*totals: float, steps: int = 20) -> tuple[Counted, ...]:
    return tuple(one(steps, syncs=total) for total in totals)


# ---------------------------------------------------------------- exact and by range


@pytest.mark.parametrize(
    ("base", "candidate", "state", "reasons"),
    [
        ((20, 20), (20, 20), PASS, []),
        ((20, 20), (21, 21), FAIL, []),
        ((20, 20), (21, 22), FAIL, []),
        ((20, 20), (10, 10), PASS, ["fewer"]),
        ((20, 20), (20, 21), PASS, ["some-processes-above"]),
        ((20, 20), (20, 20, 21), PASS, ["some-processes-above"]),
        ((20, 20), (20, 21, 21), INCONCLUSIVE, ["some-processes-above"]),
        # varying in the base
        ((20, 24), (24, 24), PASS, ["varies"]),
        ((20, 24), (30, 31), PASS, ["varies"]),  # within three times the width
        ((20, 24), (36, 36), PASS, ["varies"]),
        ((20, 24), (39, 39), FAIL, ["varies"]),
        ((20, 24), (20, 90), PASS, ["varies"]),
        ((20, 24), (60, 90), PASS, ["varies"]),  # so wide itself
        ((1000, 1002), (1050, 1051), PASS, ["varies"]),  # less than a Poisson count varies
        ((1000, 1002), (1100, 1101), FAIL, ["varies"]),
    ],
)
def test_states(base: tuple[int, ...], candidate: tuple[int, ...], state: str, reasons: list[str]) -> None:
    found = line(syncs(*base), syncs(*candidate))
    assert (found.state, codes(found)) == (state, reasons), found
    assert found.after == (min(candidate) / 20, max(candidate) / 20)


def test_thirds_of_a_step_are_equal_to_themselves() -> None:
    assert line(syncs(7, 7, steps=3), syncs(7, 7, steps=3)).state == PASS
    assert line(syncs(10**12 + 1, 10**12 + 1, steps=30), syncs(10**12 + 1, steps=30)).state == PASS


@pytest.mark.parametrize("draw", [lambda of: of.gauss(1e6, 1e5), lambda of: of.expovariate(1e-6)])
def test_a_counter_that_varies_by_itself_seldom_fails(draw: Callable[[random.Random], float]) -> None:
    """3,000 draws: stated are 1.3%; 2.2% would be 4 standard deviations away."""
    of, failed = random.Random(20), 0
    for _ in range(3000):
        base, candidate = (tuple(one(syncs=abs(draw(of))) for _ in range(2)) for _ in range(2))
        failed += line(base, candidate).state == FAIL
    assert failed / 3000 < 0.022, f"{failed} of 3000"
    assert failed, "it is no rule that never fails"


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("limit", "candidate", "state"),
    [
        (Limit(absolute=1), 40, PASS),
        (Limit(absolute=1), 41, FAIL),
        (Limit(relative=0.5), 30, PASS),
        (Limit(relative=0.5), 31, FAIL),
        (Limit(absolute=0.1, relative=0.5), 30, PASS),  # the larger of both
    ],
)
def test_a_limit_says_how_far_it_may_rise(limit: Limit, candidate: int, state: str) -> None:
    for limits in (Limits(counters={"syncs": limit}), Limits(counters={"*": limit})):
        found = line(two(syncs=20), two(syncs=candidate), limits)
        assert found.state == state
        assert codes(found) == (["within-limit"] if state == PASS else [])


def test_limits_by_name_for_all_others_and_counters_that_gate_nothing() -> None:
    limits = Limits(counters={"*": Limit(absolute=9), "syncs": Limit()})
    assert states(two(syncs=20, h2d=20), two(syncs=21, h2d=21), limits) == {"syncs": FAIL, "h2d": PASS}
    found = line(two(syncs=20), two(syncs=90), Limits(ignore=("syncs",)))
    assert (found.state, found.allowed, found.after, codes(found)) == (PASS, None, (4.5, 4.5), ["ignored"])
    base, candidate = two(correct=20), two(correct=30)
    found = line(base, candidate)
    assert (found.state, found.allowed, codes(found)) == (PASS, None, ["not-limited"])
    assert line(base, candidate, Limits(counters={"correct": Limit()})).state == FAIL
    assert line(base, candidate, Limits(counters={"*": Limit()})).allowed is None


@pytest.mark.parametrize("limits", [Limits(counters={"sync": Limit(1)}), Limits(ignore=("sync",))])
def test_a_limit_for_nothing_is_an_error(limits: Limits) -> None:
    with pytest.raises(ProfilerError, match=r"nothing counts sync: did you mean syncs\?"):
        compare(two(syncs=1), two(syncs=1), limits)
    compare(two(syncs=1), two(syncs=1), Limits(ignore=("allocations",)))  # known, and counted on another device


# ---------------------------------------------------------------- what only one side has


def test_a_new_counter_counts_from_0() -> None:
    found = compare(two(syncs=20), two(syncs=20, recompilations=1), NONE)[1]
    assert (found.state, found.before, found.after) == (FAIL, (0, 0), (0.05, 0.05))
    assert states(two(syncs=20), two(syncs=20, recompilations=0)) == {"syncs": PASS, "recompilations": PASS}
    assert line((one(syncs=20), one()), two(syncs=20)).before == (0, 1), "of a process that did not count it too"


def test_a_counter_that_is_gone_is_an_error_and_a_0_is_not() -> None:
    with pytest.raises(ProfilerError, match="allocations: the baseline has it and nothing in this run counted it"):
        compare(two(syncs=20, allocations=20), two(syncs=20), NONE)
    assert states(two(syncs=20, allocations=20), two(syncs=20, allocations=0))["allocations"] == PASS
    ignoring = Limits(ignore=("allocations",))
    assert states(two(syncs=20, allocations=20), two(syncs=20), ignoring)["allocations"] == PASS


@pytest.mark.parametrize(("base", "candidate"), [((), two(syncs=1)), (two(syncs=1), ())])
def test_no_process_is_no_comparison(base: tuple[Counted, ...], candidate: tuple[Counted, ...]) -> None:
    with pytest.raises(ProfilerError, match="nothing to compare"):
        compare(base, candidate, NONE)


# ---------------------------------------------------------------- other numbers of steps


@pytest.mark.parametrize(
    ("base", "candidate", "state"),
    [
        (syncs(20), syncs(30, steps=30), PASS),
        (syncs(20), syncs(32, steps=30), INCONCLUSIVE),  # an epoch's end that the base did not come to
        (syncs(20), syncs(60, steps=30), FAIL),
        (syncs(22), syncs(10, steps=10), PASS),
        (syncs(0), syncs(30, steps=30), FAIL),
        (syncs(20_000), syncs(31_000, steps=30), INCONCLUSIVE),
        (syncs(20_000), syncs(32_000, steps=30), FAIL),
    ],
)
def test_other_step_counts_compare_per_step(
    base: tuple[Counted, ...], candidate: tuple[Counted, ...], state: str
) -> None:
    found = line(base, candidate)
    assert found.state == state, found
    assert ("rare-events" in codes(found)) == (state == INCONCLUSIVE)


def test_fewer_of_fewer_steps_is_nothing_to_write_down() -> None:
    for candidate in (syncs(7, 8, steps=9), (one(9, syncs=7), one(20, syncs=15))):
        expected = (Notice("fewer"), Notice("other-step-count", {"before": 20, "after": 9}))
        assert line(syncs(20, 20), candidate).reasons == expected


# ---------------------------------------------------------------- without a device


def cpu(**totals: float) -> tuple[Counted, ...]:
    """A side that ran without a device."""
    absent = tuple(name for name in ("syncs", "h2d", "launches") if name not in totals)
    return tuple(replace(made, not_counted=absent) for made in two(**totals))


def test_a_0_that_was_written_without_a_device_is_no_line_any_more() -> None:
    assert states(two(files=20, syncs=0, h2d=0), cpu(files=20)) == {"files": PASS}
    assert states(cpu(files=20), cpu(files=20)) == {"files": PASS}
    assert states(cpu(files=20), two(files=20, syncs=0)) == {"files": PASS}


@pytest.mark.parametrize(
    ("base", "candidate", "side"), [(two(syncs=20), cpu(), "candidate"), (cpu(), two(syncs=20), "baseline")]
)
def test_a_counter_of_one_device_is_inconclusive(
    base: tuple[Counted, ...], candidate: tuple[Counted, ...], side: str
) -> None:
    found = line(base, candidate)
    assert (found.state, found.allowed) == (INCONCLUSIVE, None)
    assert found.reasons == (Notice("no-device", {"side": side}),)
    assert line(base, candidate, Limits(ignore=("syncs",))).state == PASS


def test_only_a_device_that_is_not_there_excuses_a_counter_that_is_gone() -> None:
    with pytest.raises(ProfilerError, match="files: the baseline has it"):
        compare(two(files=0), cpu(), NONE)
    with pytest.raises(ProfilerError, match="syncs: the baseline has it"):
        compare(two(syncs=0), two(), NONE)
    assert line(cpu(h2d=20), cpu(h2d=40)).state == FAIL, "a program that counts it itself"


# ---------------------------------------------------------------- workers


def worked(amount: float, steps: int = 20, name: str = "tokenized") -> tuple[Counted, ...]:
    return one(steps, workers={name: amount, "syncs": 0}), one(steps, workers={name: amount})


def test_workers_are_lines_of_their_own_with_a_slack() -> None:
    for amount, state in ((160, PASS), (170, PASS), (176, PASS), (180, FAIL), (100, PASS)):
        (found,) = compare(worked(160), worked(amount), NONE)
        assert (found.scope, found.counter, found.state) == ("worker", "tokenized", state), amount
    assert codes(found)[0] == "fewer"


def test_workers_that_only_one_side_has_gate_nothing() -> None:
    for base, candidate, side in ((two(), worked(20), "baseline"), (worked(20), two(), "candidate")):
        found = line(base, candidate)
        expected = (Notice("no-worker-counts", {"side": side}),)
        assert (found.state, found.allowed, found.reasons) == (PASS, None, expected)


@pytest.mark.parametrize("limits", [NONE, Limits(counters={"*": Limit()}), Limits(counters={"syncs": Limit()})])
def test_reads_of_unknown_descent_are_shown_and_gate_nothing(limits: Limits) -> None:
    found = line(two(might_sync=20), two(might_sync=90), limits)
    assert (found.state, found.allowed, found.after, codes(found)) == (PASS, None, (4.5, 4.5), ["estimate"])
    limits = Limits(counters={"might_sync": Limit()})
    assert line(two(might_sync=20), two(might_sync=21), limits).state == FAIL, "a limit that names them gates them"
    assert compare(two(syncs=1), two(syncs=1), limits)[0].state == PASS, "known, and nothing counted any"


# ---------------------------------------------------------------- together


def test_a_new_line_comes_before_old_ones_that_it_makes_count_more() -> None:
    forward, call = at(3, 200, "h = self.a(x)"), at(20, 20, "again = model(x)")
    base, candidate = one(lines=lines_of(at(3, 100, "h = self.a(x)"))), one(lines=lines_of(forward, call))
    assert [change.line for change in changed_lines("syncs", [base], [candidate])] == [20, 3]


def test_lines_come_in_a_known_order_and_are_as_bad_as_the_worst() -> None:
    names = dict.fromkeys(("zebra", *reversed(GATED), "apple"), 1.0)
    found = compare(two(**names), two(**names), NONE)
    assert [one.counter for one in found] == [*GATED, "apple", "zebra"]
    assert overall(found) == PASS
    assert overall(()) == PASS
    assert overall(compare(two(syncs=1, h2d=1), two(syncs=1, h2d=2), NONE)) == FAIL
    unsure = compare(syncs(20, 20), syncs(20, 21, 21), NONE)
    assert overall(unsure) == INCONCLUSIVE
    assert overall((*unsure, *compare(syncs(1), syncs(2), NONE))) == FAIL


def test_a_rise_says_at_which_line() -> None:
    item = at(104, 20, "loss.item()")
    base, candidate = one(syncs=0), one(syncs=20, lines=lines_of(item))
    found = line((base, base), (candidate, candidate))
    assert [(one.file, one.line, one.operation, one.before, one.after) for one in found.changes] == [
        ("train.py", 104, "item", 0.0, 1.0)
    ]
    assert line((candidate, candidate), (candidate, candidate)).changes == ()


# ---------------------------------------------------------------- the lines at which it rose

Line = tuple[CountedLine, float]


def changed(before: list[Line], after: list[Line]) -> list[tuple[str, int, float, float]]:
    found = changed_lines("syncs", [one(lines=lines_of(*before))], [one(lines=lines_of(*after))])
    return [(change.file, change.line, change.before, change.after) for change in found if change.after > change.before]


LOSS = "total += loss.item()"
NORM = "norm = grads.item()"


def kinds(before: list[Line], after: list[Line], *files: FileChange) -> dict[tuple[str, int], str]:
    sides = (one(lines=lines_of(*side)) for side in (before, after))
    found = changed_lines("syncs", *([side] for side in sides), files)
    return {(change.file, change.line): str(change.kind) for change in found}


def test_what_became_of_each_line() -> None:
    before = [at(9, 20, LOSS), at(20, 20, NORM), at(30, 60, "a.item()"), at(40, 20, "b.item()")]
    after = [at(12, 20, LOSS), at(30, 20, "a.item()"), at(40, 40, "b.item()"), at(2, 20, "x.tolist()", file="new.py")]
    assert kinds(before, after) == {
        ("train.py", 12): "moved",
        ("train.py", 20): "vanished",
        ("train.py", 30): "shrank",
        ("train.py", 40): "grew",
        ("new.py", 2): "appeared",
    }


def test_what_vanishes_pays_for_nothing_new() -> None:
    gone = [at(50 + number, 20, f"value{number} = tensor{number}.item()") for number in range(5)]
    base, candidate = (
        one(syncs=20 * len(lines), lines=lines_of(*lines))
        for lines in ([at(9, 20, LOSS), *gone], [at(9, 20, LOSS), at(30, 20, "history.append(norm.item())")])
    )
    found = line((base, base), (candidate, candidate))
    assert (found.state, codes(found)) == (FAIL, ["lines-rose"])
    assert [(change.line, change.before, change.after) for change in found.changes] == [(30, 0.0, 1.0)]
    assert [change.line for change in found.other_changes] == [50, 51, 52, 53, 54]
    allowed = Limits(counters={"syncs": Limit(1)})
    assert line((base, base), (candidate, candidate), allowed).state == PASS, "a limit is for all new lines together"


def test_with_a_diff_a_line_is_what_the_diff_says() -> None:
    """The same text once more: by its distance the wrong one would be new."""
    old = "a\nb\nx.item()\n"
    new = "x.item()\na\nb\nx.item()\n"
    change = compare_texts("train.py", "train.py", old, new)
    before, after = [at(3, 20, "x.item()")], [at(1, 20, "x.item()"), at(4, 20, "x.item()")]
    assert kinds(before, after, change) == {("train.py", 1): "appeared", ("train.py", 4): "moved"}


def test_in_an_edited_place_what_was_counted_pays_for_what_is() -> None:
    old, new = "a\nx.item()\ny.item()\nb\n", "a\nvalues = stack(x, y).tolist()\nb\n"
    change = compare_texts("train.py", "train.py", old, new)
    before, after = [at(2, 20, "x.item()"), at(3, 20, "y.item()")], [at(2, 20, "values = stack(x, y).tolist()")]
    assert kinds(before, after, change) == {("train.py", 3): "vanished"}
    more = [at(2, 60, "values = stack(x, y).tolist()")]
    assert kinds(before, more, change) == {("train.py", 2): "grew"}
    elsewhere = [at(4, 20, "values = stack(x, y).tolist()")]
    assert kinds(before, elsewhere, change)["train.py", 4] == "appeared"


def test_a_renamed_file_with_a_diff_is_the_same_file() -> None:
    change = compare_texts("train.py", "fit.py", "a\nx.item()\n", "a\na\ny = x.item()\n")
    assert kinds([at(2, 20, "x.item()")], [at(3, 20, "y = x.item()", file="fit.py")], change) == {
        ("fit.py", 3): "moved"
    }


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], [at(104, 20, LOSS)], [("train.py", 104, 0.0, 1.0)]),
        ([at(9, 20, LOSS)], [at(9, 20, LOSS)], []),
        ([at(9, 20, LOSS)], [at(12, 20, LOSS)], []),  # moved
        ([at(9, 20, LOSS)], [at(9, 20, NORM), at(10, 20, LOSS)], [("train.py", 9, 0.0, 1.0)]),  # before it
        ([at(9, 20, LOSS)], [at(9, 20, LOSS), at(10, 20, NORM)], [("train.py", 10, 0.0, 1.0)]),  # behind it
        ([at(9, 20, LOSS)], [at(9, 20, LOSS), at(10, 20, LOSS)], [("train.py", 10, 0.0, 1.0)]),  # the same once more
        ([at(9, 20, LOSS)], [at(9, 60, LOSS)], [("train.py", 9, 1.0, 3.0)]),  # in a loop now
        ([at(9, 20, LOSS)], [at(9, 20, "total = loss.item()")], []),  # edited
        ([at(9, 20, LOSS)], [at(9, 20, LOSS, function="fit")], []),  # its function has another name
        ([at(9, 20, LOSS)], [at(70, 20, LOSS, file="loop.py", function="fit")], []),  # in another file
        ([at(9, 20, LOSS), at(20, 20, NORM)], [at(9, 20, LOSS)], []),  # fewer
        ([at(9, 20)], [at(11, 20)], []),  # without texts lines are known by their place
        ([at(9, 20)], [at(9, 20), at(11, 20)], [("train.py", 11, 0.0, 1.0)]),
        (
            [at(9, 20, LOSS)],
            [at(3, 20, NORM, file="norm.py", function="clip"), at(9, 40, LOSS), at(11, 60, "x")],
            [("train.py", 11, 0.0, 3.0), ("norm.py", 3, 0.0, 1.0), ("train.py", 9, 1.0, 2.0)],  # the most first
        ),
    ],
)
def test_lines_that_rose(before: list[Line], after: list[Line], expected: list[tuple[str, int, float, float]]) -> None:
    assert changed(before, after) == expected


def test_lines_that_rose_in_every_process_of_the_counter_that_is_asked_for() -> None:
    quiet, loud = one(lines=lines_of(at(9, 20, LOSS))), one(lines=lines_of(at(9, 30, LOSS), at(10, 20, NORM)))
    assert changed_lines("syncs", [quiet, quiet], [quiet, loud]) == (), "one process did more"
    assert changed_lines("syncs", [quiet, loud], [loud, loud]) == ()
    assert [found.line for found in changed_lines("syncs", [quiet, quiet], [loud, loud])] == [10, 9]
    both = [one(lines=lines_of(at(9, 20, LOSS), at(9, 20, LOSS, counter="d2h")))]
    found = changed_lines("syncs", [one()], both)
    assert found == (Change("syncs", "train.py", 9, "main", "item", 0.0, 1.0, LOSS),)
    before, after = ([replace(one(), worker_lines=of.lines)] for of in (quiet, loud))
    assert [found.line for found in changed_lines("syncs", before, after, workers=True)] == [10, 9]
    assert changed_lines("syncs", before, after) == (), "lines of workers are their own"


# ---------------------------------------------------------------- unused limits


def unused(limits: Limits, *, state: str | None = PASS, counters: tuple[str, ...] = ("syncs",)) -> dict[str, list[str]]:
    lines = tuple(CounterLine(name, PASS, (1.0, 1.0), (1.0, 1.0), 1.0) for name in counters)
    reasons = (Notice("key-differs"),) if state == INCONCLUSIVE else ()
    result = GateResult(limits=limits, counters=lines, counters_state=state, counters_reasons=reasons)
    return {notice.code: notice.values["names"] for notice in unused_limits(result)}


def test_limits_of_counters_that_nothing_counted_are_reported() -> None:
    limits = Limits(counters={"syncs": Limit(1), "*": Limit(2)}, ignore=("syncs",))
    assert unused(limits) == {}
    assert unused(limits, counters=("h2d",)) == {"limits-unused": ["syncs"], "ignored-unused": ["syncs"]}
    for state in (None, INCONCLUSIVE):
        assert unused(limits, state=state, counters=()) == {}, "nothing was compared"


def test_lines_of_the_start_are_compared_where_the_base_has_them() -> None:
    more = one(startup_operators=20, lines=lines_of(at(3, 20, counter="startup_operators")))
    less = one(startup_operators=10, lines=lines_of(at(3, 10, counter="startup_operators")))
    (change,) = changed_lines("startup_operators", [less], [more])
    assert (change.line, change.before, change.after) == (3, 0.5, 1.0)
    assert not changed_lines("startup_operators", [one(startup_operators=10)], [more]), "a baseline file has no lines"
    assert [change.line for change in changed_lines("startup_operators", [one(startup_operators=0)], [more])] == [3]


# ---------------------------------------------------------------- budgets


def with_budget(amount: float, budget: Budget, *, base: float = 0.0, ignore: tuple[str, ...] = ()) -> CounterLine:
    """The peak of a process per step, of which a quarter is at line 3 and the rest at line 9."""
    lines = lines_of(
        at(3, 5 * amount, counter="peak_bytes"),
        at(9, 15 * amount, counter="peak_bytes"),
    )
    sides = (one(peak_bytes=20 * (base or amount), lines=lines),), (one(peak_bytes=20 * amount, lines=lines),)
    return line(*sides, Limits(budgets={"peak_bytes": budget}, ignore=ignore))


def test_a_budget_holds_whatever_the_base_has() -> None:
    found = with_budget(100.0, Budget(fail=99.0))
    assert (found.state, found.exceeded, codes(found)) == (FAIL, 99.0, ["above-budget"])
    assert [change.line for change in found.largest] == [9, 3], "the line with most of it first"
    assert found.changes == ()
    assert with_budget(100.0, Budget(fail=100.0)).state == PASS, "as much as there may be"
    ignored = with_budget(100.0, Budget(fail=99.0), base=50.0, ignore=("peak_bytes",))
    assert (ignored.state, codes(ignored)) == (FAIL, ["above-budget", "ignored"])


def test_a_budget_may_only_warn() -> None:
    found = with_budget(100.0, Budget(warn=50.0, fail=200.0))
    assert (found.state, found.exceeded) == (PASS, 50.0)
    (warning,) = budget_warnings([found])
    assert warning.values == {"counter": "peak_bytes", "amount": 100.0, "budget": 50.0}
    assert not budget_warnings([with_budget(100.0, Budget(warn=50.0, fail=90.0))]), "a FAIL is no warning"


def test_a_budget_needs_no_base() -> None:
    limits = Limits(budgets={"peak_bytes": Budget(warn=1.0, fail=99.0), "syncs": Budget(fail=1.0)})
    lines = budget_lines((one(1, peak_bytes=100.0, syncs=1.0, h2d=3.0),), limits)
    assert {found.counter: (found.state, found.before, codes(found)) for found in lines} == {
        "syncs": (PASS, None, []),
        "peak_bytes": (FAIL, None, ["above-budget"]),
    }
    result = GateResult(
        counters=lines, counters_state=FAIL, counters_reasons=(Notice("key-differs"),),
        limits=replace(limits, budgets={**limits.budgets, "flops": Budget(fail=1.0)}, ignore=("h2d",)),
    )  # fmt: skip
    assert unused_limits(result) == (Notice("budgets-unused", {"names": ["flops"]}),)


def test_one_process_above_a_budget_is_not_all() -> None:
    limits = Limits(budgets={"syncs": Budget(fail=1.0)})
    assert line(syncs(20, 60), syncs(20, 60), limits).state == PASS
    assert line(syncs(60, 60), syncs(60, 60), limits).state == FAIL


def test_a_budget_for_what_nothing_counts_is_refused_or_mentioned() -> None:
    with pytest.raises(ProfilerError, match=r"nothing counts peak_byte: did you mean peak_bytes\?"):
        compare(syncs(20), syncs(20), Limits(budgets={"peak_byte": Budget(fail=1.0)}))
    limits = Limits(budgets={"peak_bytes": Budget(fail=1.0)})
    result = GateResult(limits=limits, counters=compare(syncs(20), syncs(20), limits), counters_state=PASS)
    assert unused_limits(result) == (Notice("budgets-unused", {"names": ["peak_bytes"]}),)


def test_an_evaluation_that_one_side_does_not_have_does_not_fail() -> None:
    with_evaluation, without = one(syncs=20, evaluation_operators=200), one(syncs=20)
    assert states((without,), (with_evaluation,)) == {"syncs": PASS, "evaluation_operators": PASS}
    assert states((with_evaluation,), (without,)) == {"syncs": PASS, "evaluation_operators": PASS}
    more = one(syncs=20, evaluation_operators=220)
    assert states((with_evaluation,), (more,)) == {"syncs": PASS, "evaluation_operators": FAIL}


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("counter", ["peak_bytes", "allocated_bytes"])
@pytest.mark.parametrize(
    ("before", "more", "state"),
    [(20_000, 512, PASS), (20_000, 1 << 20, PASS), (20_000, (1 << 20) + 1, FAIL), (10**10, 10**7, PASS),
     (10**10, 10**7 + 1, FAIL)],
)  # fmt: skip
def test_memory_may_rise_by_a_mebibyte_or_a_thousandth(counter: str, before: int, more: int, state: str) -> None:
    base, candidate = two(**{counter: 20 * before}), two(**{counter: 20 * (before + more)})
    found = line(base, candidate)
    assert found.state == state
    assert found.allowed == before + max(1 << 20, before / 1000), "the outputs show it"
    assert line(base, candidate, Limits(counters={counter: Limit()})).state == FAIL, "a limit that names it applies"


def test_growth_may_not_rise_and_memory_that_was_counted_in_bytes_is_not_compared() -> None:
    assert line(two(growth_bytes=0), two(growth_bytes=20 * 512)).state == FAIL
    found = compare(two(syncs=0), two(syncs=0, growth_bytes=20 * 512, peak_bytes=10**9), NONE)
    assert [(each.state, codes(each)) for each in found[1:]] == [(PASS, ["memory-in-bytes"])] * 2
