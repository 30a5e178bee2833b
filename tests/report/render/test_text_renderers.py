"""Terminal and Markdown: every block kind, any width, without colour or Unicode, hostile text stays text."""

from __future__ import annotations

import io
import re
import typing
from dataclasses import replace

import pytest
from rich.console import Console

from profiler.analyse.model.host import LineCost
from profiler.report import blocks
from profiler.report.build import build_report
from profiler.report.render import console, html, markdown
from profiler.report.render.drawing import bar, spark
from profiler.run.model import Site
from tests.report import ladders, samples
from tests.report.test_build import all_blocks

KINDS = set(typing.get_args(blocks.Block))


def printed(
    report: blocks.Report,
    width: int,
    *,
    full: bool = True,
    encoding: str = "utf-8",
    colour: bool = False,
    page: bool = True,
) -> str:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n")
    terminal = Console(file=out, width=width, force_terminal=colour, no_color=not colour, highlight=False)
    console.print_report(report, full=full, console=terminal, page=page)
    out.flush()
    return raw.getvalue().decode(encoding)


def a_timeline() -> blocks.TimelineChart:
    """A host that launches, and waits for the device to compute."""
    kinds = tuple(blocks.TimelineKind(label, tone, label) for label, tone in (("launch", "c4"), ("computes", "c6")))
    idle = blocks.TimelineKind("device idle", "idle", "idle")
    track = blocks.TimelineTrack("device", (10, 40), (30, 80), (0, 1), idle)
    return blocks.TimelineChart(
        "100 ns of a run",
        100,
        (blocks.TimelineGroup("run", "7 tokens", (track,)),),
        kinds,
        "A typical step.",
        tuple((kind.label, kind.tone) for kind in (*kinds, idle)),
    )


def one_of_each() -> blocks.Report:
    """A report with every kind of block, verdicts in their colours, and levels of an interval plot."""
    row = blocks.Interval("typical", "s2", (1.0,), 1.0, 0.5, 1.5, "+1.0%")
    found: dict[type, blocks.Block] = {
        blocks.NotMeasured: blocks.NotMeasured("the weather", "no window"),
        blocks.Callout: blocks.Callout("It rose.", "verdict", "FAIL", judged="bad"),
        blocks.Table: blocks.Table(
            "t", (blocks.Column("a"), blocks.Column("b")), ((blocks.Cell("x"), blocks.Cell("PASS", judged="good")),)
        ),
        blocks.Places: blocks.Places("Lines", (blocks.CodePlace(None, "train.py:7: item", "x.item()", change="2"),)),
        blocks.PhaseStrip: blocks.PhaseStrip("A step", (blocks.Segment("data", 2.0, "2 s", "c1"),), 1.0, "then: 1 s"),
        blocks.TimelineChart: a_timeline(),
        blocks.SlopeChart: blocks.SlopeChart(
            "Slopes",
            (blocks.Column("a"), blocks.Column("b")),
            (blocks.Slope("decode", (2.0, 1.0), ("2 s", "1 s of decode"), "1/2", "decode.py:1"),),
        ),
        blocks.IntervalChart: blocks.IntervalChart("i", "%", (row,), levels=(blocks.Level("caught:", 5.0, "5%"),)),
    }
    for section in build_report(ladders.with_ladder()).sections:
        for block in all_blocks(section.blocks):
            found.setdefault(type(block), block)
    assert set(found) == KINDS, KINDS - set(found)
    return blocks.Report("kinds", "all of them", (blocks.Section("k", "Kinds", tuple(found.values())),))


def test_every_renderer_draws_every_block() -> None:
    report = one_of_each()
    terminal, text, page = printed(report, 80), markdown.render(report), html.render(report)
    for drawn in (terminal, text, page):
        assert "the weather" in drawn
        assert "not measured: no window" in drawn or (drawn is page and "no window</li>" in drawn)
        assert "synchronize" in drawn or "tokenize" in drawn, "the flame graph is missing"
        assert "then: 1 s" in drawn
        assert "x.item" in drawn
        assert "1 s of decode" in drawn
        assert "A typical step." in drawn
    assert "FAIL: It rose." in terminal
    assert re.search(r"caught: +5%", terminal)
    assert re.search(r"run device +█+ +▓+ +\n█ launch  ▓ computes\n", terminal)
    assert "| run | device | computes 40%, device idle 40%, launch 20% |" in text
    assert "> **FAIL:** **It rose.**" in text
    assert "| caught: | 5% |" in text
    assert '<span class="tag judged bad">FAIL</span>' in page
    assert '<span class="n judged good">PASS</span>' in page
    assert "; caught: 5%" in page
    coloured = printed(report, 80, colour=True)
    assert "\x1b[1;31mFAIL: It rose." in coloured
    assert "\x1b[32mPASS" in coloured


@pytest.mark.parametrize("width", [60, 120])
@pytest.mark.parametrize("make", [samples.comparison, samples.three_sides, samples.analysis, ladders.with_ladder])
def test_terminal_lines_fit(make: typing.Callable[[], typing.Any], width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for full in (False, True):
        assert max(map(len, printed(build_report(make()), width, full=full).splitlines())) <= width


def test_terminal_without_unicode_or_colour() -> None:
    text = printed(build_report(samples.comparison()), 80, encoding="ascii")
    assert "\x1b" not in text
    assert "#" in text
    assert "49.8x" in text


def test_a_narrow_terminal_shortens_intervals_but_no_words() -> None:
    text = " ".join(printed(build_report(ladders.with_ladder()), 90).split())
    assert "removes:" in text
    assert "pageable" in text
    assert "removes: and" not in text


def test_a_line_number_is_never_cut() -> None:
    lines = tuple(
        LineCost(Site(f"/home/somebody/a-long-folder/{name}.py", 1035, "outer.<locals>.inner"), "m.f" * 20, *numbers)
        for name, numbers in (("evaluation", (0.5, 0.5, 0.4, 0.6, 90)), ("b", (0.25, 0.25, 0.2, 0.3, 50)))
    )
    report = build_report(replace(samples.analysis(), lines=lines))
    for width in (60, 80, 120):
        text = printed(report, width)
        assert "evaluation.py:1035" in text, width
        assert "b.py:1035" in text, width


def test_a_name_cannot_command_the_terminal() -> None:
    report = build_report(samples.comparison(after="[red]fixed[/red]\x1b[2J"))
    text = printed(report, 120)
    assert "[red]fixed" in text
    assert "\x1b" not in text
    assert "\x1b[2J" not in printed(report, 120, colour=True)


def test_markdown_keeps_hostile_text_as_text_in_rectangular_tables() -> None:
    text = markdown.render(build_report(samples.comparison(after=samples.HOSTILE)))
    prose = re.sub(r"^ {7}.*$", "", text, flags=re.MULTILINE)  # a list's code, in which nothing is markup
    assert "<script" not in prose
    assert "<img" not in prose
    assert not re.search(r"(?<!\\)\]\(", prose), "a link"
    assert "\x1b" not in text
    assert markdown.escape("a|b `c` [d](http://e)") == "a\\|b \\`c\\` \\[d\\](http&#8203;://e)"
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_bars_and_curves_of_characters() -> None:
    assert [bar(1.0, 4), bar(0.001, 4), bar(0.0, 4), bar(0.001, 4, unicode=False)] == ["████", "▏", "", "#"]
    assert [spark([0.0, 1.0], 1.0), spark([], 1.0), spark([0.0], 0.0)] == ["▁█", "", "▁"]
    assert len(spark([1.0] * 1000, 1.0, width=40)) == 40
