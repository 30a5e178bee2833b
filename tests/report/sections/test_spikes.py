"""The section of steps that take longer, and its JSON."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.model import SpikeLine, Spikes
from profiler.report.blocks import Table
from profiler.report.render.json import analysis_json, render
from profiler.report.sections.spikes import PLUGIN
from profiler.run.model import Site
from tests.report import samples

LINES = (SpikeLine(Site("train.py", 36, "evaluate"), 0.75),)
SPIKES = Spikes(6, 60, 10, 26.0, 0.72, LINES, 150, enough=True)


def tables(spikes: Spikes) -> list[Table]:
    section = samples.build_section(PLUGIN, replace(samples.analysis(), spikes=spikes))
    return [block for block in section.blocks if isinstance(block, Table)]


def test_how_often_how_long_and_where() -> None:
    steps, lines = tables(SPIKES)
    assert [f"{cell.text}{cell.unit}" for cell in steps.rows[0][1:]] == ["6 of 60", "every 10th", "26.0×", "72.0%"]
    assert [cell.text for cell in lines.rows[0]] == ["train.py:36", "75.0", "54.0"]
    assert "150 stack samples" in lines.note


def test_without_a_line_it_says_why() -> None:
    [machine] = tables(replace(SPIKES, every=0, lines=()))
    assert machine.rows[0][2].text == "irregularly"
    assert "no line stands out in the long steps: the machine" in machine.note
    [few] = tables(replace(SPIKES, lines=(), samples=3, enough=False))
    assert "3 stack samples in long steps: too few" in few.note


def test_nothing_where_there_are_none() -> None:
    assert samples.build_section(PLUGIN, samples.analysis()) is None


def test_json_has_them_or_why_not() -> None:
    document = analysis_json(replace(samples.analysis(), spikes=SPIKES))
    render(document)
    assert (document["spikes"]["every"], document["spikes"]["lines"][0]["line"]) == (10, 36)
    document = analysis_json(samples.analysis())
    assert document["spikes"] is None
    assert document["not_measured"]["spikes"] == "no step takes much longer than the others"
