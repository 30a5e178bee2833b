"""The parts of a check as one state and a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.check.counters import compare, overall
from profiler.check.decide import throughput
from profiler.check.model import CONFIRM, FAIL, INCONCLUSIVE, PASS, GateResult, Limits
from profiler.check.verdict import concluded
from tests.check.made import exact
from tests.fakes.counting import two


def result(before: float, after: float, **options: str) -> GateResult:
    lines = compare(two(syncs=before), two(syncs=after), Limits())
    return concluded(GateResult(counters=lines, counters_state=overall(lines), **options))  # type: ignore[arg-type]


def test_it_is_as_bad_as_its_worst_part_and_says_what_is() -> None:
    assert (result(20, 20).state, result(20, 20).sentence) == (PASS, "No counter rose")
    assert (result(20, 40).state, result(20, 40).sentence) == (FAIL, "Syncs rose by 1 per step")
    unknown = concluded(GateResult(counters_state=INCONCLUSIVE, counters_reason="device: cpu against cuda"))
    assert (unknown.state, unknown.sentence) == (INCONCLUSIVE, "Device: cpu against cuda")
    with pytest.raises(ValueError, match="nothing was gated"):
        concluded(GateResult())


def test_what_each_round_says_is_told_with_it() -> None:
    rounds = [*exact(0.0, 0.05), *exact(0.05, kind=CONFIRM, control=0.02), replace(exact(0.0)[0], turns=())]
    speed = throughput(rounds, Limits())
    assert speed.of_rounds == ()
    found = concluded(GateResult(throughput=speed)).throughput
    assert found is not None
    candidate, control = zip(*found.of_rounds, strict=True)
    assert candidate == (pytest.approx(0.0, abs=1e-6), pytest.approx(0.05), pytest.approx(0.05), None)
    assert control == (None, None, pytest.approx(0.02), None)


def test_a_gain_is_to_be_written_down_only_where_there_is_a_file() -> None:
    assert result(20, 10, baseline_file="b.json").counters[0].reason == "fewer: write the new count down with --update"
    assert result(20, 10, mode="against").counters[0].reason == "fewer"
    assert result(20, 20, mode="against").counters[0].reason == ""
