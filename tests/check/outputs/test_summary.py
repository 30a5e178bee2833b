"""The verdict in the terminal, as Markdown and as the summary of a job: complete and escaped."""

from __future__ import annotations

import errno
import io
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from profiler.check.model import GateResult
from profiler.check.modes.finish import conclude
from profiler.check.outputs.first_screen import first_screen
from profiler.check.outputs.text import sentence
from profiler.check.outputs.write import MAX_SUMMARY, append_summary, print_result, render_markdown
from profiler.core.errors import Notice, ProfilerError
from tests.check.outputs import results


def printed(
    result: GateResult,
    monkeypatch: pytest.MonkeyPatch,
    width: int | None = 80,
    encoding: str = "utf-8",
    **variables: str,
) -> str:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**({"COLUMNS": str(width)} if width else {}), **variables}.items():
        monkeypatch.setenv(name, value)
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    print_result(result, stream=stream)
    return stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", results.everything())
def test_lines_fit_the_terminal_and_no_text_commands_it(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    result = results.everything()[name]
    text = printed(result, monkeypatch, width)
    lines = text.splitlines()
    assert lines[0 if result.state == "PASS" else 1].startswith(f"{result.state}: ")
    wide = [line for line in lines if cell_len(line) > width and not line.startswith("report: ")]
    assert name == "hostile" or wide == []
    assert not set(text) & set("\x1b\x07\x00\u202e\r")
    assert "##[" not in text
    assert [line for line in lines if line.lstrip().startswith("::")] == [], "a command for GitHub's runner"
    printed(result, monkeypatch, width, "ascii")


def test_a_job_without_a_terminal_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    result = results.everything()["failed"]
    context, cut = first_screen(result, ()).context_line(), printed(result, monkeypatch, 40)
    assert context not in cut
    whole = printed(result, monkeypatch, width=None, FORCE_COLOR="1", TERM="xterm")
    assert context in whole
    assert "…" not in whole


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", results.everything())
def test_a_terminal_shows_the_first_screen_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in (("COLUMNS", "80"), ("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(variable, value)
    result, stream = results.everything()[name], _Terminal()
    print_result(result, stream=stream)
    shown, screen = stream.getvalue(), first_screen(result, ())
    assert shown.count("\n") <= 40
    assert f"{result.state}: " in shown
    assert (screen.actions_title in shown) == bool(screen.actions)
    assert name in ("hostile", "failed baseline") or all(place.location[:30] in shown for place in screen.places)
    assert "Counters per step" not in shown


NOT_SEEN = Notice("not-seen", {"missing": ["evaluation", "checkpoint"], "workers": 2, "lines": ["train.py:7"]})


def test_a_pass_is_its_verdict_and_what_was_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(conclude(replace(results.passed(), notes=(NOT_SEEN,))), monkeypatch, 200)
    assert text.splitlines() == [
        "PASS: a slow-down above 1.2% is ruled out and no counter rose",
        f"{sentence(NOT_SEEN)}",
    ]


@pytest.mark.parametrize("name", [name for name, each in results.everything().items() if each.state != "PASS"])
def test_any_other_result_ends_with_its_verdict_and_takes_forty_lines(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = results.everything()[name]
    lines = printed(result, monkeypatch, 80).splitlines()
    assert len(lines) <= 40
    verdicts = [at for at, line in enumerate(lines) if line.startswith(f"{result.state}: ")]
    assert len(verdicts) == 2
    assert name == "hostile" or len(lines) - verdicts[1] <= 4, "the verdict is last"


def test_colours_only_where_they_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = printed(results.failed(), monkeypatch)
    assert "\x1b" not in piped
    coloured = printed(results.failed(), monkeypatch, FORCE_COLOR="1", TERM="xterm-256color")
    assert "\x1b[1;31mFAIL" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == piped
    forbidden = printed(results.failed(), monkeypatch, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1")
    assert not re.search(r"\x1b\[[\d;]*3[0-7]", forbidden)


def test_a_closed_standard_output_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    print_result(results.passed(), stream=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", results.everything())
def test_tables_hold_and_texts_stay_texts(name: str) -> None:
    text = render_markdown(results.everything()[name])
    assert text.startswith(f"## Performance check: {results.everything()[name].state}\n")
    assert text.count("<details>") == text.count("</details>") == text.count("<summary>")
    columns = 0
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert cells in {0, columns or cells}, line
        columns = cells
    assert not set(text) & set("\x1b\x07\x00\u202e\r")
    # an indented block is code, in which nothing has a meaning
    text = "\n".join(line for line in text.splitlines() if not line.startswith("      "))
    assert "<script" not in text
    assert not re.search(r"@\w", text), "nobody is notified"
    assert "[" not in text.replace("\\[", "").replace("> [!", "")
    assert not re.search(r"(?<!\\)`", text)
    assert [line for line in text.splitlines() if line.startswith("::")] == []
    text.encode()


def test_the_summary_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_text("before")
    append_summary(results.passed(), path)
    append_summary(results.failed(), path)
    first, second = render_markdown(results.passed()), render_markdown(results.failed())
    assert path.read_text(encoding="utf-8") == f"before\n{first}\n{second}"


def test_a_summary_that_would_be_too_long_has_no_details(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    short = render_markdown(results.failed(), details=False)
    assert "<details>" not in short
    path.write_text("x" * (MAX_SUMMARY - len(short.encode()) - 10))
    append_summary(results.failed(), path)
    assert path.read_text(encoding="utf-8").endswith(f"x\n{short}")


@pytest.mark.parametrize(
    ("path", "message"), [("no/folder", "cannot write the job's summary"), ("/dev/full", os.strerror(errno.ENOSPC))]
)
def test_a_summary_that_cannot_be_written_is_one_line(tmp_path: Path, path: str, message: str) -> None:
    if path == "/dev/full" and not Path(path).exists():
        pytest.skip("there is no /dev/full here")
    with pytest.raises(ProfilerError, match=message) as caught:
        append_summary(results.passed(), tmp_path / path)
    assert "\n" not in str(caught.value)
