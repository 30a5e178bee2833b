"""The parts of a check as one state and a sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import profiler
from profiler.check.counters.compare import compare, overall
from profiler.check.counters.environment_key import key_differences
from profiler.check.model import FAIL, INCONCLUSIVE, PASS, GateResult, Limits
from profiler.check.modes.finish import conclude
from profiler.check.outputs import text
from profiler.check.outputs.text import sentence, unstated_speed_reason
from profiler.check.speed.verdict import throughput
from tests.check.synthetic_rounds import exact
from tests.fakes.counting import two


def result(before: float, after: float, **options: str) -> GateResult:
    lines = compare(two(syncs=before), two(syncs=after), Limits())
    return conclude(GateResult(counters=lines, counters_state=overall(lines), **options))  # type: ignore[arg-type]


def test_it_is_as_bad_as_its_worst_part_and_says_what_is() -> None:
    assert (result(20, 20).state, result(20, 20).sentence) == (PASS, "No counter rose")
    assert (result(20, 40).state, result(20, 40).sentence) == (FAIL, "Syncs rose by 1 per step")
    differs = key_differences({"device": "cpu"}, {"device": "cuda"}, "key-differs", "baseline")
    unknown = conclude(GateResult(counters_state=INCONCLUSIVE, counters_reasons=differs))
    assert unknown.state == INCONCLUSIVE
    assert unknown.sentence.startswith("Device: cpu in the baseline against cuda (")
    with pytest.raises(ValueError, match="nothing was compared"):
        conclude(GateResult())


def test_a_gain_is_to_be_written_down_only_where_there_is_a_file() -> None:
    for options, expected in (({"baseline_file": "b.json"}, ["fewer-than-baseline"]), ({"mode": "against"}, ["fewer"])):
        assert [reason.code for reason in result(20, 10, **options).counters[0].reasons] == expected


def test_the_reason_of_an_undecided_speed_is_part_of_the_verdict_and_not_repeated() -> None:
    speed = throughput(exact(0.0), Limits())
    undecided = conclude(GateResult(throughput=speed))
    assert speed.reason is not None
    assert sentence(speed.reason) in undecided.sentence
    assert unstated_speed_reason(undecided) == ""
    failed = conclude(GateResult(throughput=speed, counters_state=FAIL))
    assert unstated_speed_reason(failed) == sentence(speed.reason)


def test_each_code_in_the_product_has_a_sentence() -> None:
    folder = Path(profiler.__file__).parent / "check"
    sources = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    codes = {code for source in sources for code in re.findall(r'Notice\(\s*"([a-z-]+)"', source)}
    assert len(codes) > 30
    assert codes <= text._SENTENCES.keys()
