"""The section of the timeline: a button a side, with what it does beside it; a reason where there is none."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.model import Timeline
from profiler.report.blocks import TraceBlock
from profiler.report.sections.recording import timeline
from tests.fakes.sentences import note
from tests.report import samples


def test_what_the_click_does_stands_beside_the_button() -> None:
    [block] = samples.build_section(timeline, samples.analysis()).blocks
    assert block.title == "as-found: steps 41 to 60 of 100, 1.20 s"
    assert "sends nothing by itself" in block.note
    assert "loads the page ui.perfetto.dev from the network" in block.note
    assert block.fallback.startswith("python -m profiler export RUN")


def test_each_side_has_its_own() -> None:
    assert [type(block) for block in samples.build_section(timeline, samples.comparison()).blocks] == [
        TraceBlock,
        TraceBlock,
    ]


def test_reasons() -> None:
    missing = Timeline(reason=note("a single step of it takes 3 MB"))
    [block] = samples.build_section(timeline, replace(samples.analysis(), timeline=missing)).blocks
    assert block.reason == "a single step of it takes 3 MB; python -m profiler export RUN writes it"


def test_a_single_run_without_one_has_no_section() -> None:
    assert samples.build_section(timeline, replace(samples.analysis(), timeline=None)) is None
