"""Numbers, counters and lines of a check as text; tests/approval has the usual ones."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profiler.check.model import FAIL, INCONCLUSIVE, PASS, Change, CounterLine, TimeLine
from profiler.check.outputs import format as fmt
from profiler.core.units import NOT_MEASURED
from tests.check.outputs import results

NAN = math.nan
BASE = results.passed().base
WITH_FILE = replace(results.passed(), baseline_file="b.json")
LINE = TimeLine("typical step", INCONCLUSIVE, 0.0, None, None, 20, 0.05, 12, 141.0)


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (fmt.counter_noun, ("syncs", 1.0), "sync"),
        (fmt.counter_noun, ("lost_socks",), "lost socks"),
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
        (fmt.duration, (math.inf,), NOT_MEASURED),
        (fmt.short_commit, ("3fa2c1d0e9b8", ""), "3fa2c1d"),
        (fmt.short_commit, ("3fa2c1d0e9b8+changes", ""), "3fa2c1d+changes"),
        (fmt.short_commit, ("3fa2c1d0e9b8+unknown", ""), "3fa2c1d+unknown"),
        (fmt.short_commit, ("3fa2c1d0e9b8", "working tree (3fa2c1d+changes)"), "3fa2c1d+changes"),
        (fmt.site, (results.SYNC,), "+1 sync per step at examples/train.py:104 (train_step, item)"),
        (
            fmt.site,
            (Change("h2d_bytes", "a.py", 0, "<module>", "", 2e6, 1e6),),
            "-1.00 MB of H2D copies per step at a.py",
        ),
        (fmt.site, (Change("syncs", "", 9, "", "", 0.0, NAN),), f"{NOT_MEASURED}: syncs per step at an unknown line"),
        (fmt.side_title, (replace(BASE, what="HEAD (3fa2c1d)"),), "HEAD (3fa2c1d)"),
        (fmt.side_speed, (replace(BASE, step_time=NAN, tokens_per_s=None, step_source=""),), ""),
        (fmt.reference_title, (WITH_FILE,), "origin/main at 3fa2c1d0e9 and b.json"),
        (fmt.base_column, (WITH_FILE,), "Base"),
    ],
)
def test_values(function: object, arguments: tuple[object, ...], expected: object) -> None:
    assert function(*arguments) == expected  # type: ignore[operator]


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


def test_what_a_pass_rules_out() -> None:
    assert fmt.ruled_out(replace(LINE, high=0.012)) == "1.2%"
    assert fmt.ruled_out(LINE) is None
