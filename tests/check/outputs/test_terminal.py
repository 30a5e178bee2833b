"""The verdict in the terminal: first, complete, within the width, and nothing in it that commands who reads it."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from profiler.check.model import GateResult
from profiler.check.outputs.terminal import print_result
from tests.check.outputs import results


class Stream(io.StringIO):
    """A stream of an encoding."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:
        return self._encoding


def shown(
    result: GateResult, monkeypatch: pytest.MonkeyPatch, width: int = 80, encoding: str = "utf-8", **variables: str
) -> str:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"COLUMNS": str(width), **variables}.items():
        monkeypatch.setenv(name, value)
    stream = Stream(encoding)
    print_result(result, stream=stream)
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", results.everything())
def test_the_verdict_is_first_and_nothing_is_wider_than_the_terminal(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = results.everything()[name]
    text = shown(result, monkeypatch, width)
    lines = text.splitlines()
    assert lines[0].startswith(f"{result.state}  ")
    wide = [line for line in lines if cell_len(line) > width and not line.startswith("report: ")]
    assert wide == []
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_failure_shows_what_rose_where_and_how_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(results.failed(), monkeypatch)
    for part in (
        r"FAIL  Syncs +12 +13 +12\n +\+1 sync per step at examples/train\.py:104 \(train_step, item\)",
        r"FAIL  Calls that would sync on a GPU +none +2 +0\n +the baseline has none",
        r"PASS  H2D copies +4 +3 +4\n +fewer: refresh the baseline",
        r"  3 others unchanged",
        r"FAIL +typical step +\+5\.3% +\+4\.2% to \+6\.5% +5\n +INCONCLUSIVE +all steps",
        r"4 more rounds \(about 47 s\) would probably settle it\n",
        r"takes\n? +5\.3% longer\.\n      SYNTHETIC: candidate runs 0\.95x",
        r"Throughput  FAIL  confirmed by 3 rounds with slots swapped\n",
        r"Warnings\n  - The load rose",
        r"report: reports/runs/2026-11-20-check/check\.html",
    ):
        assert re.search(part, text), f"{part} is not in\n{text}"
    assert "Tokenized" not in text, "what did not change is one line"


def test_what_a_run_would_have_seen_contradicts_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(results.passed(), monkeypatch)
    ruled = "slower by more than 1.2% is ruled out\n          from +3.1% on it would have been a FAIL (80%)\n"
    assert ruled in text, text
    failed = shown(results.failed(), monkeypatch)
    assert failed.count("would have been a FAIL") == 1, "of the line that is settled nothing"
    assert "from +6.3% on it would have been a FAIL (80%)" in failed
    open_one = " ".join(shown(results.inconclusive(), monkeypatch).split())
    assert "12 more rounds (about 2 min 21 s) would probably settle it: more than --max-rounds 28 allows" in open_one


def test_a_counter_that_may_be_meant_says_how_to_write_it_down(monkeypatch: pytest.MonkeyPatch) -> None:
    meant = "if this is meant: --update --reason TEXT"
    assert shown(replace(results.failed(), mode="baseline"), monkeypatch).splitlines()[-1] == meant
    assert meant not in shown(results.failed(), monkeypatch), "there is no file"
    assert meant not in shown(results.other_machine(), monkeypatch), "nothing rose"


def test_a_pass_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(results.passed(), monkeypatch)
    assert "all 6 unchanged" in text
    assert "1.2% faster" in text
    assert len(text.splitlines()) < 25, text


def test_without_measurements_nothing_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(results.unmeasured(), monkeypatch)
    assert re.search(r"typical step +not measured +0\n", text), text
    assert "0.0%" not in text
    assert "report:" not in text


def test_piped_there_is_no_colour_and_with_colours_the_words_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = shown(results.failed(), monkeypatch)
    assert "\x1b" not in piped
    coloured = shown(results.failed(), monkeypatch, FORCE_COLOR="1", TERM="xterm-256color")
    assert "\x1b[1;31mFAIL" in coloured
    assert "\x1b[33mThe load rose" in coloured, "warnings are yellow"
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == piped
    forbidden = shown(results.failed(), monkeypatch, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1")
    assert not re.search(r"\x1b\[[\d;]*3[0-7]", forbidden)


def test_without_unicode_it_is_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    for result in results.everything().values():
        shown(result, monkeypatch, encoding="ascii").encode("ascii")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_hostile_text_commands_neither_the_terminal_nor_a_runner(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(results.hostile(), monkeypatch, width)
    assert not set(text) & set("\x1b\x07\x00\u202e\r")
    assert "##[" not in text
    assert [line for line in text.splitlines() if line.lstrip().startswith("::")] == []
    text.encode()


def test_the_control_is_told_where_no_reason_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = results.failed().throughput
    assert gate is not None
    text = shown(replace(results.failed(), throughput=replace(gate, reason=None)), monkeypatch)
    assert "The base against a second copy of itself: +0.2%." in text
