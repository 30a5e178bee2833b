"""Other work on the machine is said beside the verdict that it qualifies, in words and on the page."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.model import OTHER_MACHINES, OTHER_PROGRAMS
from profiler.report.blocks import Callout, Group, Stats
from profiler.report.build import build_report
from profiler.report.doubts import alike, company, not_alone
from profiler.report.summary import summary
from tests.report import samples

LOAD = f"{OTHER_PROGRAMS} 1.2 of the machine's 2 cores meanwhile"
STEAL = f"{OTHER_MACHINES} 12.0% of the CPU time of this one (steal)"
OTHER = "only 3 measured steps: 20 or more make a mean"


def test_notes_that_differ_in_numbers_are_one() -> None:
    assert alike(["took 1.5 s", OTHER, "took 20 s"]) == ["took 1.5 s (and 1 more like this)", OTHER]


def test_only_what_others_took_is_company() -> None:
    assert company([OTHER, LOAD, STEAL, LOAD.replace("1.2", "0.7")]) == [f"{LOAD} (and 1 more like this)", STEAL]


def test_of_a_run_it_stands_between_the_verdict_and_the_numbers() -> None:
    run = replace(samples.analysis(), notes=(OTHER, LOAD))
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
    loaded = replace(after, runs=(replace(after.runs[0], notes=(LOAD,)), *after.runs[1:]))
    subject = replace(comparison, sides=(before, loaded))
    assert not_alone(subject).startswith(f"fixed: {LOAD}. Times are longer")
    section = build_report(subject).sections[0]
    assert isinstance(section.blocks[1], Callout)
    assert isinstance(section.blocks[-1], Group)


def test_alone_there_is_nothing_to_say() -> None:
    assert not_alone(samples.analysis()) == ""
    assert not_alone(samples.comparison()) == ""


def test_the_lines_after_a_recording_have_it_below_the_verdict() -> None:
    run = replace(samples.analysis(), notes=(OTHER, LOAD))
    lines = summary(run)
    assert [line.text for line in lines[:2]] == [run.verdict, f"  {LOAD}"]
    assert lines[1].pieces[0][1] == "warning"
    light = replace(run, info=samples.info("run", "light"))
    assert [line.text for line in summary(light)].count(f"  {LOAD}") == 1
