"""Other work on the machine is said beside the verdict that it qualifies, in words and on the page."""

from __future__ import annotations

from dataclasses import replace

from profiler.core.notice import Notice
from profiler.report.blocks import Callout, Group, Stats
from profiler.report.build import build_report
from profiler.report.doubts import alike, company, not_alone
from profiler.report.summary import summary
from profiler.report.text import describe
from tests.report import samples

LOADED = Notice("other-programs", {"used": 1.2, "cores": 2})
STOLEN = Notice("other-machines", {"share": 0.12})
FEW = Notice("few-steps", {"steps": 3, "needed": 5})
LOAD, STEAL, OTHER = map(describe, (LOADED, STOLEN, FEW))


def test_notes_that_differ_in_numbers_are_one() -> None:
    assert alike([Notice("drift", {"change": 0.5}), FEW, Notice("drift", {"change": 0.6})]) == [
        "steps drift: the last third takes 50% more time than the first (and 1 more like this)",
        OTHER,
    ]


def test_only_what_others_took_is_company() -> None:
    assert company([FEW, LOADED, STOLEN, Notice("other-programs", {"used": 0.7, "cores": 2})]) == [
        f"{LOAD} (and 1 more like this)",
        STEAL,
    ]


def test_of_a_run_it_stands_between_the_verdict_and_the_numbers() -> None:
    run = replace(samples.analysis(), warnings=(FEW, LOADED))
    section = build_report(run).sections[0]
    verdict, load, numbers = section.blocks[:3]
    assert isinstance(verdict, Callout)
    assert isinstance(load, Callout)
    assert isinstance(numbers, Stats)
    assert (load.tone, load.label) == ("warning", "Not alone")
    assert load.text == (
        "Other programs used 1.2 of the machine's 2 cores meanwhile. "
        "Times are longer than on a quiet machine, and vary more."
    )
    assert section.brief[1] == load


def test_of_a_comparison_it_names_the_side() -> None:
    comparison = samples.comparison()
    before, after = comparison.sides
    loaded = replace(after, runs=(replace(after.runs[0], warnings=(LOADED,)), *after.runs[1:]))
    subject = replace(comparison, sides=(before, loaded))
    assert not_alone(subject).startswith(f"fixed: {LOAD}. Times are longer")
    section = build_report(subject).sections[0]
    assert isinstance(section.blocks[1], Callout)
    assert isinstance(section.blocks[-1], Group)


def test_alone_there_is_nothing_to_say() -> None:
    assert not_alone(samples.analysis()) == ""
    assert not_alone(samples.comparison()) == ""


def test_the_lines_after_a_recording_have_it_below_the_verdict() -> None:
    run = replace(samples.analysis(), warnings=(FEW, LOADED))
    lines = summary(run)
    assert [line.text for line in lines[:2]] == [run.verdict, f"  {LOAD}"]
    assert lines[1].pieces[0][1] == "warning"
    light = replace(run, info=samples.info("run", "light"))
    assert [line.text for line in summary(light)].count(f"  {LOAD}") == 1
