"""Numbers, counters and lines of a check as text."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profiler.check.model import FAIL, INCONCLUSIVE, PASS, Change, CounterLine, Limit, Limits, TimeLine
from profiler.check.outputs import format as fmt
from profiler.core.units import NOT_MEASURED
from tests.check.outputs import results

NAN = math.nan


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (fmt.counter_noun, ("syncs", 1.0), "sync"),
        (fmt.counter_noun, ("syncs",), "syncs"),
        (fmt.counter_noun, ("lost_socks",), "lost socks"),
        (fmt.amount, (1_548_000.0, "h2d_bytes"), "1.55 MB"),
        (fmt.amount, (2.5e6, "stall_ns"), "2.50 ms"),
        (fmt.amount, (NAN, "syncs"), NOT_MEASURED),
        (fmt.amounts, ((12_004.2, 12_004.4), "syncs"), ["12,004.2", "12,004.4"]),
        (fmt.amounts, ((1_548_000.0, 1_548_001.0), "h2d_bytes"), ["1,548,000 B", "1,548,001 B"]),
        (fmt.amounts, ((3.0, 3.0 + 1e-12), "syncs"), ["3", "3"]),
        (fmt.percent, (0.0521,), "+5.3%"),
        (fmt.percent, (-0.0004,), "0.0%"),
        (fmt.percent, (None,), NOT_MEASURED),
        (fmt.percent, (900.0,), NOT_MEASURED),
        (fmt.slower_or_faster, (-0.0315,), "3.1% faster"),
        (fmt.interval, (0.04, 0.06), "+4.1% to +6.2%"),
        (fmt.interval, (0.04, NAN), "at least +4.1%"),
        (fmt.interval, (None, 0.06), "at most +6.2%"),
        (fmt.interval, (None, None), ""),
        (fmt.share, (0.025,), "2.5%"),
        (fmt.duration, (1.234,), "1.23 s"),
        (fmt.duration, (47.2,), "47 s"),
        (fmt.duration, (125.0,), "2 min 05 s"),
        (fmt.duration, (math.inf,), NOT_MEASURED),
        (fmt.rounds, (1,), "1 round"),
        (fmt.counter_title, (results.COUNTERS[0],), "Syncs"),
        (fmt.counter_title, (results.COUNTERS[-1],), "Tokenized texts, in loader workers"),
        (fmt.short_commit, ("3fa2c1d0e9b8", ""), "3fa2c1d"),
        (fmt.short_commit, ("3fa2c1d0e9b8+changes", ""), "3fa2c1d+changes"),
        (fmt.short_commit, ("3fa2c1d0e9b8", "working tree (3fa2c1d+changes)"), "3fa2c1d+changes"),
    ],
)
def test_values(function: object, arguments: tuple[object, ...], expected: object) -> None:
    assert function(*arguments) == expected  # type: ignore[operator]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (results.SYNC, "+1 sync per step at examples/train.py:104 (train_step, item)"),
        (Change("h2d_bytes", "a.py", 0, "<module>", "", 2e6, 1e6), "-1.00 MB of H2D copies per step at a.py"),
        (Change("syncs", "", 0, "", "", 0.0, math.inf), f"{NOT_MEASURED}: syncs per step at an unknown line"),
    ],
)
def test_sites(change: Change, expected: str) -> None:
    text = fmt.site(change)
    assert text.lower() == expected.lower() or "of" in text


@pytest.mark.parametrize(
    ("line", "amounts", "changed", "fewer"),
    [
        (CounterLine("syncs", PASS, (12.0, 12.0), (12.0, 12.0), 12.0), ("12", "12", "12"), False, False),
        (CounterLine("syncs", FAIL, (12.0, 12.0), (13.0, 14.0), 12.0), ("12", "13 to 14", "12"), True, False),
        (CounterLine("syncs", PASS, (12.0, 12.0), (3.0, 3.0), None), ("12", "3", "any"), True, True),
        (CounterLine("syncs", FAIL, None, (2.0, 2.0), 0.0), ("none", "2", "0"), True, False),
        (CounterLine("syncs", PASS, (2.0, 2.0), None, 2.0), ("2", "none", "2"), True, True),
    ],
)
def test_counter_lines(line: CounterLine, amounts: tuple[str, str, str], changed: bool, fewer: bool) -> None:
    assert fmt.counter_amounts(line) == amounts
    assert (fmt.is_changed(line), fmt.is_fewer(line)) == (changed, fewer)


def test_what_could_be_detected() -> None:
    passed, failed, undecided = (
        TimeLine("typical step", state, 0.003, -0.006, high, count, smallest)
        for state, high, count, smallest in (
            (PASS, 0.012, 5, 0.031),
            (FAIL, 0.1, 5, 0.02),
            (INCONCLUSIVE, None, 3, 0.2),
        )
    )
    assert fmt.ruled_out(passed) == "1.2%"
    assert ["1.2%" in part for part in fmt.detectable(passed, PASS)] == [True, False]
    assert fmt.detectable(failed, FAIL) == ()
    assert fmt.detectable(replace(undecided, slowdown=0.3), INCONCLUSIVE) == (), "enough, but not confirmed"
    assert "+22.1%" in fmt.detectable(undecided, INCONCLUSIVE)[0]


def test_what_would_settle_a_line() -> None:
    result = results.inconclusive()
    line = TimeLine("typical step", INCONCLUSIVE, 0.0, None, None, 20, 0.05, 12, 141.0)
    assert fmt.remaining_effort(result, line) == "12 more rounds (about 2 min 21 s): more than --max-rounds 28 allows"
    assert fmt.remaining_effort(result, replace(line, more_rounds=1)) == "1 more round (about 2 min 21 s)"
    assert fmt.remaining_effort(result, replace(line, more_rounds=None)) == "about 2 min 21 s more"
    assert fmt.remaining_effort(result, replace(line, more_rounds=None, more_seconds=None)) == ""
    assert "5 rounds" in fmt.remaining_effort(result, replace(line, rounds=3))


def test_sides() -> None:
    result = results.passed()
    assert fmt.side_title(result.base) == "origin/main at 3fa2c1d0e9"
    assert fmt.side_title(replace(result.base, what="HEAD (3fa2c1d)")) == "HEAD (3fa2c1d)"
    assert fmt.base_column(result) == "Base (origin/main)"
    with_file = replace(result, baseline_file="b.json")
    assert fmt.reference_title(with_file) == "origin/main at 3fa2c1d0e9 and b.json"
    assert fmt.base_column(with_file) == "Base"
    baseline = replace(with_file, mode="baseline")
    assert (fmt.reference_title(baseline), fmt.base_column(baseline)) == ("b.json", "Baseline")
    assert fmt.side_speed(result.base) == "a step of 50.2 ms, 10.2k tokens/s, steps: profiler.step()"
    assert fmt.side_speed(replace(result.base, step_time=NAN, tokens_per_s=None, step_source="")) == ""


def test_limits_are_listed() -> None:
    limits = Limits(counters={"*": Limit(1.0), "h2d_bytes": Limit(0.0, 0.02)}, ignore=("syncs",), inconclusive="pass")
    lines = list(fmt.limit_sentences(replace(results.passed(), limits=limits)))
    assert len(lines) == 5
    assert "every other counter" in lines[1]
    assert "2%" in lines[2]
