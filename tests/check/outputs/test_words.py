"""A gate's numbers in words: units, signs, and no two different amounts that look alike."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profiler.check.model import FAIL, INCONCLUSIVE, PASS, Change, CounterLine
from profiler.check.outputs import said, words
from profiler.check.speed.sequential import LOOKS, POWER
from tests.check.outputs import results


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (results.SYNC, "+1 sync per step at examples/train.py:104 (train_step, item)"),
        (Change("syncs", "t.py", 9, "<module>", "", 3.0, 1.0), "-2 syncs per step at t.py:9"),
        (Change("h2d_bytes", "t.py", 9, "f", "to", 0.0, 1.2e6), "+1.20 MB of H2D copies per step at t.py:9 (f, to)"),
        (Change("compile_ns", "", 0, "", "", 0.0, 3e6), "+3.00 ms of compilation per step at an unknown line"),
        (Change("my_thing", "t.py", 0, "f", "", 0.0, 0.25), "+0.250 my thing per step at t.py (f)"),
        (Change("would_sync", "t.py", 1, "", "", 0.0, 1.0), "+1 call that would sync on a GPU per step at t.py:1"),
    ],
)
def test_a_site_says_what_rose_where(change: Change, expected: str) -> None:
    assert words.site(change) == expected


@pytest.mark.parametrize(
    ("slowdown", "expected"),
    [
        (0.05, "+5.1%"),
        (-0.05, "4.9% faster"),
        (0.0001, "0.0%"),
        (-0.0001, "0.0%"),
        (math.log(2), "+100.0%"),
        (None, "not measured"),
        (math.nan, "not measured"),
        (math.inf, "not measured"),
        (900.0, "not measured"),
    ],
)
def test_a_slowdown_in_percent_of_time(slowdown: float | None, expected: str) -> None:
    assert words.slowdown(slowdown) == expected


def test_an_interval_keeps_its_signs() -> None:
    assert words.interval(-0.02, 0.01) == "-2.0% to +1.0%"
    assert words.interval(None, 0.01) == "at most +1.0%"
    assert words.interval(0.01, None) == "at least +1.0%"
    assert words.interval(None, math.nan) == ""


@pytest.mark.parametrize("values", [(12004.2, 12004.4), (1_548_000.0, 1_548_004.0), (3.0, 3.0004), (0.3333, 0.3334)])
@pytest.mark.parametrize("counter", ["syncs", "h2d_bytes", "compile_ns"])
def test_different_amounts_look_different(values: tuple[float, float], counter: str) -> None:
    one, other = words.amounts(values, counter)
    assert one != other, (one, other)


def test_equal_amounts_look_equal_and_short() -> None:
    assert words.amounts((1_548_000.0, 1_548_000.0), "h2d_bytes") == ("1.55 MB", "1.55 MB")
    assert words.amounts((0.1 + 0.2, 0.3), "syncs") == ("0.300", "0.300")


def test_a_row_says_none_and_any_and_ranges() -> None:
    assert words.row(CounterLine("syncs", FAIL, None, (2.0, 3.0), 0.0)) == ("none", "2 to 3", "0")
    assert words.row(CounterLine("syncs", PASS, (2.0, 2.0), None, None)) == ("2", "none", "any")


def test_what_changed_and_what_fell() -> None:
    assert not words.changed(CounterLine("syncs", PASS, (0.1 + 0.2, 0.3), (0.3, 0.3), 0.3))
    assert words.changed(CounterLine("syncs", PASS, (3.0, 3.0), None, 3.0))
    assert words.fewer(CounterLine("syncs", PASS, (3.0, 3.0), (2.0, 2.0), 3.0))
    assert words.fewer(CounterLine("syncs", PASS, (3.0, 3.0), None, 3.0))
    assert not words.fewer(CounterLine("syncs", PASS, (3.0, 3.0), (3.0, 3.0), 3.0))
    assert not words.fewer(CounterLine("syncs", PASS, None, (3.0, 3.0), 3.0))


def test_workers_have_their_own_title() -> None:
    assert words.title(results.COUNTERS[-1]) == "Tokenized texts, in loader workers"


def test_how_much_longer() -> None:
    result = results.failed()
    line = result.throughput.lines[1]
    assert said.more(result, line) == "4 more rounds (about 47 s) would probably settle it"
    assert said.more(result, results.TIMES[0]) == ""
    assert said.time_sentence(result, line, line.state) == (
        "all steps: +3.8% (-0.4% to +8.1%) over 5 rounds; from +6.3% on it would have been a FAIL (80%); "
        "4 more rounds (about 47 s) would probably settle it"
    )
    more = replace(line, more_rounds=24)
    assert said.more(result, more).endswith("would probably settle it: more than --max-rounds 28 allows")


def test_of_too_few_rounds_nothing_is_foretold() -> None:
    assert (LOOKS[0], f"{POWER:.0%}") == (said.FIRST_LOOK, said.POWER)
    few = replace(results.failed().throughput.lines[1], rounds=2, more_rounds=77, more_seconds=1024.0)
    assert said.more(results.failed(), few) == "a verdict needs 5 rounds at least"
    assert said.seen(few, INCONCLUSIVE) == ("so few rounds would show a FAIL only from +6.3% on (80%)",)


def test_what_was_found_in_vain_was_seen() -> None:
    found = replace(results.failed().throughput.lines[0], state=INCONCLUSIVE)
    assert said.seen(found, INCONCLUSIVE) == (), "nothing confirmed it: the amount is not why"
    assert said.seen(results.TIMES[1], PASS)[0] == "slower by more than 0.1% is ruled out"
    gain = replace(results.TIMES[1], high=-0.02)
    assert said.seen(gain, PASS)[0] == "slower by more than 0.0% is ruled out"


def test_limits_in_words() -> None:
    text = " ".join(said.limits(results.failed()))
    assert "A slow-down of 5% is caught (--detect)" in text
    assert "allocations: 0 per step or 2%" in text
    assert "INCONCLUSIVE fails the job" in text


def test_what_it_is_held_against_has_its_name() -> None:
    result = results.failed()
    assert (said.base_word(result), said.base_title(result)) == ("base", "Base (origin/main)")
    revision = replace(result, base=replace(result.base, what="HEAD~1 (3f2a9c1)"))
    assert said.base_title(revision) == "Base (HEAD~1)"
    file = replace(result, mode="baseline")
    assert (said.base_word(file), said.base_title(file)) == ("baseline", "Baseline")
    assert said.base_title(replace(result, mode="commands")) == "Base"
    both = replace(result, baseline_file="counters.json")
    assert said.base_title(both) == "Base", "a line may be of the file"
    assert said.held_against(both) == "origin/main at 3fa2c1d0e9 and counters.json"
    assert said.held_against(replace(both, mode="baseline")) == "counters.json"
    assert said.counter_sentence(result.counters[0], "base").startswith("Syncs per step: 13, base 12, at most 12")


def test_a_commit_with_changes_says_so() -> None:
    commit = "3fa2c1d0e9b8a7f6c5d4e3f2a1b0c9d8e7f6a5b4"
    assert said.commit(commit, "working tree (3fa2c1d+changes)") == "3fa2c1d+changes"
    assert said.commit(commit, "working tree (3fa2c1d)") == "3fa2c1d"
    assert said.commit(f"{commit}+changes") == "3fa2c1d+changes"
    assert said.commit("", "working tree") == ""
    assert said.side(replace(results.failed().candidate, commit=f"{commit}+changes")) == (
        "the working tree at 3fa2c1d0e9+changes"
    )
    tree = replace(results.failed().candidate, what="working tree (3fa2c1d+changes)", commit=commit)
    assert said.side(tree) == "working tree (3fa2c1d+changes)"
