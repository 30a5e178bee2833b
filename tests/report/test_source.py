"""The text of a line stands beside the line in every output, and stays text."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from profiler.analyse.model.analysis import Analysis
from profiler.core.terminal import plain
from profiler.report.build import build_report
from profiler.report.render import html, markdown
from profiler.report.render.console import print_report
from profiler.report.render.json import analysis_json, render
from profiler.run.model import Site
from tests.report import hook_samples
from tests.report.pages import read
from tests.report.samples import HOSTILE, HOSTILE_ATTRIBUTE, HOSTILE_TEXT

PLAIN = "loss = model(x[y < 3]).sum()  # a & b"
TEXTS = (PLAIN, HOSTILE, HOSTILE_ATTRIBUTE, HOSTILE_TEXT)


def run(source: str) -> Analysis:
    """A run whose first line has this text."""
    first, *others = hook_samples.LINES
    line = replace(first, site=replace(first.site, source=source))
    return replace(hook_samples.run(), lines=(line, *others))


def terminal(analysis: Analysis, width: int = 80, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding)
    print_report(build_report(analysis), full=True, console=Console(file=file, width=width, highlight=False))
    file.seek(0)
    return file.read()


@pytest.mark.parametrize("source", TEXTS)
def test_the_page_has_the_text_as_text(source: str) -> None:
    text = html.render(build_report(run(source)))
    page = read(text)
    assert plain(source) in page.text
    data = [value for tag, name, value in page.attributes if (tag, name) == ("script", "type")]
    assert page.tags.count("script") == 1 + len(data), "scripts, and the data of timelines"
    assert "img" not in page.tags
    assert "\x1b" not in text


@pytest.mark.parametrize("source", TEXTS)
def test_markdown_has_the_text_as_text(source: str) -> None:
    text = markdown.render(build_report(run(source)))
    assert f"train.py:41 (main): {markdown.escape(source)} |" in text
    assert "<script" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("source", TEXTS)
def test_a_terminal_has_the_text_on_one_line(source: str) -> None:
    text = terminal(run(source))
    assert any("train.py:41" in line and plain(source)[:40] in line for line in text.splitlines())
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_long_line_is_cut_with_an_ellipsis(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "x" * 190 in terminal(run("x" * 190), width), "a file has lines of any length"
    monkeypatch.setenv("COLUMNS", str(width))
    lines = [line for line in terminal(run("x" * 190), width).splitlines() if "xxxx" in line]
    assert lines
    assert all(len(line) == width and line.endswith("x…") for line in lines)


def test_an_ascii_terminal_has_no_other_characters() -> None:
    assert "y = ?? # ..xxx" in terminal(run("y = 数据 # …" + "x" * 100), encoding="ascii")


@pytest.mark.parametrize("source", TEXTS)
def test_json_has_the_text_and_an_empty_one_where_it_is_not_known(source: str) -> None:
    document = json.loads(render(analysis_json(run(source))))
    assert [line["site"]["source"] for line in document["lines"][:2]] == [plain(source), ""]
    assert not any("source" in path for path in document["not_measured"])


def test_without_a_text_only_the_place_is_shown() -> None:
    assert '<code class="src">' not in html.render(build_report(run_without_text()))
    assert "train.py:41 (main) |" in markdown.render(build_report(run_without_text()))


def run_without_text() -> Analysis:
    lines = tuple(replace(line, site=Site("train.py", 41, "main")) for line in hook_samples.LINES)
    return replace(hook_samples.run(), lines=lines, threads=(), startup_teardown=(), spikes=None, findings=())
