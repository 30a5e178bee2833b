"""Which round comes next, and the verdict of the rounds there are."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profiler.check.model import BASE, CANDIDATE, CONFIRM, FAIL, INCONCLUSIVE, MEASURE, PASS, Limits, Round, Throughput
from profiler.check.speed.verdict import INTERRUPTED, next_kind, on_other_filesystem, throughput
from profiler.core.errors import Notice
from tests.check.synthetic_rounds import Made, a_round, exact, gate, some

LIMITS = Limits()
TIME_LIMIT = Notice("time-limit", {"seconds": 9.0})


def lines(of: Throughput) -> dict[str, str]:
    return {line.name: line.state for line in of.lines}


SAME, SLOWER = (0.0, 0.004, -0.004), (0.05, 0.054, 0.046)
"""Slow-downs of rounds that pass, and of rounds that are suspected to fail."""


def told(found: Throughput) -> Notice:
    assert found.reason is not None
    return found.reason


def test_the_same_code_passes_after_three_rounds() -> None:
    rounds = exact(*SAME)
    assert [next_kind(rounds[:number], LIMITS) for number in range(4)] == [*[MEASURE] * 3, None]
    found = throughput(rounds, LIMITS)
    assert (found.state, lines(found)) == (PASS, {"typical step": PASS, "all steps": PASS})
    assert (found.reason, found.confirmed, found.warnings) == (None, None, ())
    line = found.lines[0]
    assert line.slowdown == pytest.approx(0, abs=1e-6)
    assert (line.low or 1) < 0 < (line.high or 1) < math.log(1.04)
    assert math.log(1.02) < (line.smallest or 1) < 0.05
    assert (line.rounds, line.more_rounds, line.more_seconds) == (3, None, None)


def test_a_suspected_fail_asks_for_rounds_that_confirm() -> None:
    rounds, confirming = exact(*SLOWER), exact(0.05, 0.052, kind=CONFIRM)
    assert [next_kind([*rounds, *confirming[:number]], LIMITS) for number in range(3)] == [CONFIRM, CONFIRM, None]
    found = throughput([*rounds, *confirming], LIMITS)
    assert (found.state, found.confirmed) == (FAIL, True)
    assert (told(found).code, told(found).values["rounds"]) == ("slowdown-confirmed", 2)
    assert told(found).values["lines"][0] == ("typical step", pytest.approx(0.051))
    assert found.lines[0].rounds == 5
    assert found.round_slowdowns == pytest.approx([*SLOWER, 0.05, 0.052], abs=1e-6)


def test_confirming_rounds_that_disagree_make_it_inconclusive() -> None:
    rounds = exact(*SLOWER)
    confirming = exact(*[0.0, 0.005] * 4, kind=CONFIRM)
    kinds = [next_kind([*rounds, *confirming[:number]], LIMITS) for number in range(2, 9)]
    assert kinds == [*[CONFIRM] * 6, None]
    found = throughput([*rounds, *confirming], LIMITS)
    assert (found.state, found.confirmed) == (INCONCLUSIVE, False)
    assert lines(found) == {"typical step": INCONCLUSIVE, "all steps": INCONCLUSIVE}
    assert (told(found).code, told(found).values["rounds"]) == ("slowdown-not-confirmed", 8)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (Made(), PASS),
        (Made(slower=-0.1), PASS),
        (Made(slower=math.log(1.05)), FAIL),
        (Made(slower=math.log(2.4)), FAIL),
        (Made(every=10), FAIL),
    ],
)
def test_gates_of_known_differences(made: Made, expected: str) -> None:
    states = [throughput(gate(made, seed=seed), LIMITS).state for seed in range(6)]
    assert states == [expected] * 6


def test_rare_and_long_stalls_count_in_full() -> None:
    """A stall of nine steps every fiftieth: +18% of the time."""
    found = throughput(gate(Made(every=50, stall=9.0), seed=1), LIMITS)
    assert (found.state, lines(found)) == (FAIL, {"typical step": PASS, "all steps": FAIL}), found.reason
    assert told(found).values["stalls"] > 0.02
    assert 0.08 < (found.lines[1].slowdown or 0) < 0.3, found.lines[1]
    rounds = exact(*SAME)
    first = rounds[0].blocks[0]
    struck = replace(first, side=CANDIDATE, steps=(first.steps[0] * 30, *first.steps[1:]))
    rounds[0] = replace(rounds[0], blocks=(struck, *rounds[0].blocks[1:]))
    assert throughput(rounds, LIMITS).state == PASS, "a single stall is chance"
    rounds[1] = replace(rounds[1], blocks=(struck, *rounds[1].blocks[1:]))
    assert next_kind(rounds, LIMITS) == MEASURE, "two of them may be more than chance"
    struck = replace(struck, steps=(first.steps[0] * 5, *first.steps[1:]))
    rounds = [replace(one, blocks=(struck, *one.blocks[1:])) for one in exact(-1.5, -1.504)]
    assert throughput([*rounds, *exact(-1.496)], LIMITS).state == PASS, "it is faster with them too"


@pytest.mark.parametrize(("every", "stall"), [(50, 9.0), (100, 20.0)])
def test_stalls_that_some_rounds_lack_are_found(every: int, stall: float) -> None:
    made = Made(every=every, stall=stall)
    states = [throughput(gate(made, seed=seed), LIMITS).state for seed in range(10)]
    assert states.count(FAIL) >= (10 if every == 50 else 5), states


def test_after_the_maximum_it_is_inconclusive_and_tells_what_would_settle_it() -> None:
    rounds = exact(*[0.0, 0.06] * 14)
    assert next_kind(rounds[:27], LIMITS) == MEASURE
    assert next_kind(rounds, LIMITS) is None
    found = throughput(rounds, LIMITS)
    assert found.state == INCONCLUSIVE
    assert (told(found).code, told(found).values["usable"]) == ("undecided", 28)
    assert [told(found).values[name] for name in ("at_most", "at_least")] == pytest.approx([0.02, 0.04])
    line = found.lines[0]
    assert line.more_rounds is not None
    assert line.more_seconds == pytest.approx(6.0 * line.more_rounds)
    assert next_kind(rounds, replace(LIMITS, max_rounds=40)) == MEASURE


def reason(rounds: list[Round], limits: Limits = LIMITS, stopped: Notice | None = None) -> Notice:
    """Why the verdict is INCONCLUSIVE."""
    found = throughput(rounds, limits, stopped=stopped)
    assert found.state == INCONCLUSIVE
    return told(found)


def test_a_time_limit_allows_a_final_look_and_an_interrupt_does_not() -> None:
    rounds = exact(0.036, 0.0, 0.036, 0.0, 0.036, 0.0)
    assert throughput(rounds, LIMITS, stopped=TIME_LIMIT).state == PASS
    assert reason(rounds).code == "undecided"
    assert reason(rounds, stopped=Notice(INTERRUPTED)).code == "undecided"
    interrupted = reason(rounds[:2], stopped=Notice(INTERRUPTED))
    assert (interrupted.code, interrupted.values["usable"], interrupted.values["needed"]) == ("too-few-rounds", 2, 3)
    slow = reason(exact(0.1, 0.101, 0.102), stopped=TIME_LIMIT)
    assert (slow.code, slow.values["stopped"], slow.values["rounds"]) == ("confirmation-incomplete", TIME_LIMIT, 0)


def test_it_tells_what_would_probably_settle_it() -> None:
    rounds = exact(0.02, 0.06, 0.0, 0.05, 0.01, 0.04)
    limits = replace(LIMITS, max_rounds=6)
    more = max(line.more_rounds or 0 for line in throughput(rounds, limits).lines if line.state == INCONCLUSIVE)
    values = reason(rounds, limits).values
    assert (values["more"], values["max_rounds"]) == (more, 6 + more)
    assert values["more_seconds"] == pytest.approx(6.0 * more)
    for stopped in (Notice(INTERRUPTED), TIME_LIMIT):
        values = reason(rounds, replace(LIMITS, max_rounds=40), stopped).values
        assert (values["more"], values["max_rounds"]) == (more, None), "the rounds did not run out"
    assert reason(exact(0.0), replace(LIMITS, max_rounds=1)).values["max_rounds"] == 3, "what a verdict needs"
    mixed = [one for usable in rounds for one in (usable, replace(usable, blocks=()))]
    limits = replace(LIMITS, max_rounds=12)
    more = max(line.more_rounds or 0 for line in throughput(mixed, limits).lines if line.state == INCONCLUSIVE)
    assert reason(mixed, limits).values["max_rounds"] == 12 + 2 * more, "as many as before will be lost"


def test_on_another_file_system_a_fail_is_inconclusive() -> None:
    failed = throughput([*exact(*SLOWER), *exact(0.05, 0.052, kind=CONFIRM)], LIMITS)
    found = on_other_filesystem(failed)
    assert (found.state, set(lines(found).values())) == (INCONCLUSIVE, {INCONCLUSIVE})
    assert found.reason == Notice("other-filesystem", {"otherwise": failed.reason})
    passed = on_other_filesystem(throughput(exact(*SAME), LIMITS))
    assert (passed.state, [warning.code for warning in passed.warnings]) == (PASS, ["other-filesystem"])


@pytest.mark.parametrize("number", [0, 1, 2])
def test_too_few_rounds_are_inconclusive(number: int) -> None:
    found = reason(exact(0.0, 0.001)[:number], stopped=TIME_LIMIT)
    assert (found.code, found.values["usable"], found.values["total"]) == ("too-few-rounds", number, number)
    assert (found.values["stopped"], found.values["max_rounds"]) == (TIME_LIMIT, None)


def test_rounds_without_blocks_of_one_side_are_unusable() -> None:
    one = a_round(1)
    empty = replace(one, blocks=tuple(block for block in one.blocks if block.side == BASE))
    assert next_kind([empty, empty], LIMITS) == MEASURE
    assert next_kind([empty] * 3, LIMITS) is None, "no more of them"
    found = throughput([empty] * 3, LIMITS)
    assert found.state == INCONCLUSIVE
    assert [line.slowdown for line in found.lines] == [None, None]
    assert (told(found).values["usable"], told(found).values["total"]) == (0, 3)
    mixed = [empty, *exact(0.0, 0.004), empty]
    assert next_kind(mixed, LIMITS) == MEASURE
    assert next_kind([*mixed, *exact(0.001)], LIMITS) is None
    assert throughput([*mixed, *exact(0.001)], LIMITS).state == PASS


def test_programs_that_end_early_leave_fewer_pairs() -> None:
    rounds = [replace(one, blocks=one.blocks[:12]) for one in some(5, Made(luck=0.0))]
    found = throughput(rounds, LIMITS, stopped=TIME_LIMIT)
    assert found.lines[0].rounds == 5
    assert Notice("few-pairs", {"pairs": 6}) in found.warnings


@pytest.mark.parametrize(("detect", "expected"), [(0.2, PASS), (0.05, FAIL)])
def test_the_slow_down_to_detect_scales_the_edges(detect: float, expected: str) -> None:
    made = Made(slower=math.log(1.06))
    assert throughput(gate(made, Limits(detect=detect)), Limits(detect=detect)).state == expected


@pytest.mark.parametrize("most", [1, 2, 3, 6])
def test_a_small_maximum_ends_the_rounds(most: int) -> None:
    limits = Limits(max_rounds=most)
    rounds = gate(Made(), limits)
    assert len(rounds) <= most
    assert throughput(rounds, limits).state in {PASS, INCONCLUSIVE}
