"""The summary of a job: GitHub's Markdown whose tables hold and whose texts stay texts."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from profiler.check.model import Conditions, Throughput
from profiler.check.outputs import markdown
from tests.check.outputs import results


@pytest.mark.parametrize("name", results.everything())
def test_tables_hold_and_folds_close(name: str) -> None:
    text = markdown.render(results.everything()[name])
    assert text.startswith(f"## Performance check: {results.everything()[name].state}\n")
    assert text.count("<details>") == text.count("</details>") == text.count("<summary>")
    head = 0
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert cells in {0, head or cells}, line
        head = cells
    text.encode()


def test_a_failure_in_numbers() -> None:
    text = markdown.render(results.failed())
    for part in (
        "> [!CAUTION]\n> **FAIL**: SYNTHETIC: 1 sync more per step at examples/train.py:104",
        "|  | Counter | Base (origin/main) | Candidate | Allowed |  |",
        "| FAIL | Syncs | 12 | 13 | 12 |  |",
        "| PASS | H2D copies | 4 | 3 | 4 | fewer: refresh the baseline |",
        "- **+1 sync per step at examples/train.py:104** (train\\_step, item)",
        "3 others unchanged.",
        "| FAIL | typical step | +5.3% | +4.2% to +6.5% | 5 | +2.3% |  |",
        "|  |  | Slow-down | Interval | Rounds | Would have been a FAIL from (80%) |  |",
        "longer.\n>\n> SYNTHETIC: candidate runs 0.95x the steps/s of base",
        "Steps: medians of the round, which decide nothing.",
        "### Warnings\n\n- The load rose",
        "| 6 | confirm | candidate, base, control |",
        "| cpu | AMD EPYC 7B13 |",
    ):
        assert part in text, f"{part} is not in\n{text}"


def test_a_round_shows_what_the_verdict_takes_from_it() -> None:
    result = results.failed()
    gate = result.throughput
    assert gate is not None
    text = markdown.render(replace(result, throughput=replace(gate, round_slowdowns=((0.39, None), (None, None)))))
    first, second, third = [line for line in text.splitlines() if re.match(r"\| [123] \| measure", line)]
    assert first.split(" | ")[5] == "+47.7%"
    assert [line.split(" | ")[5] for line in (second, third)] == ["not measured"] * 2


def test_a_counter_that_may_be_meant() -> None:
    assert "If this is meant: --update --reason TEXT" in markdown.render(replace(results.failed(), mode="baseline"))
    assert "If this is meant" not in markdown.render(results.failed())


def test_without_details_it_is_shorter_and_says_the_same() -> None:
    whole, short = (markdown.render(results.failed(), details=folded) for folded in (True, False))
    assert whole.startswith(short.rstrip())
    assert "<details>" not in short


def test_hostile_text_stays_text() -> None:
    text = markdown.render(results.hostile())
    assert "<script" not in text
    assert not set(text) & set("\x1b\x07\x00\u202e\r")
    assert not re.search(r"@\w", text), "nobody is called"
    unescaped = text.replace("\\[", "").replace("\\]", "").replace("> [!CAUTION]", "")
    assert "[" not in unescaped
    assert not re.search(r"(?<!\\)`", text)
    assert [line for line in text.splitlines() if line.startswith("::")] == []


def test_rounds_that_say_nothing_of_the_machine() -> None:
    result = results.passed()
    gate = result.throughput
    assert isinstance(gate, Throughput)
    rounds = tuple(replace(one, conditions=Conditions(), blocks=()) for one in gate.rounds)
    text = markdown.render(replace(result, throughput=replace(gate, rounds=rounds, round_slowdowns=())))
    assert "| 1 | measure | base, candidate | not measured | not measured | not measured | not measured |" in text
