"""Other work on the machine is said beside the verdict that it qualifies, in words and on the page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model import Analysis, Measure
from profiler.core.notice import Notice
from profiler.report.blocks import Callout, Group, Stats
from profiler.report.build import build_report
from profiler.report.model import ReportInput, exit_status, group_warnings, load_warnings, noisy_machine
from profiler.report.summary import summary
from profiler.report.text import describe
from profiler.run.model import CollectorStatus, RunInfo, StepDefinition, StepKind
from tests.report import samples

LOADED = Notice("other-programs", {"used": 1.2, "cores": 2})
STOLEN = Notice("other-machines", {"share": 0.12})
FEW = Notice("few-steps", {"steps": 3, "needed": 5})
LOAD, STEAL, OTHER = map(describe, (LOADED, STOLEN, FEW))


def test_notes_that_differ_in_numbers_are_one() -> None:
    assert group_warnings([Notice("drift", {"change": 0.5}), FEW, Notice("drift", {"change": 0.6})]) == [
        "steps drift: the last third takes 50% more time than the first (and 1 more like this)",
        OTHER,
    ]


def test_only_what_others_took_is_load_warnings() -> None:
    assert load_warnings([FEW, LOADED, STOLEN, Notice("other-programs", {"used": 0.7, "cores": 2})]) == [
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
    assert (load.tone, load.label) == ("warning", "Noisy machine")
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
    assert noisy_machine(ReportInput.from_results(subject)).startswith(f"fixed: {LOAD}. Times are longer")
    section = build_report(subject).sections[0]
    assert isinstance(section.blocks[1], Callout)
    assert isinstance(section.blocks[-1], Group)


def test_alone_there_is_nothing_to_say() -> None:
    assert noisy_machine(ReportInput.from_results(samples.analysis())) == ""
    assert noisy_machine(ReportInput.from_results(samples.comparison())) == ""


def test_the_lines_after_a_recording_have_it_below_the_verdict() -> None:
    run = replace(samples.analysis(), warnings=(FEW, LOADED))
    lines = summary(run)
    assert [line.text for line in lines[:2]] == [run.verdict, f"  {LOAD}"]
    assert lines[1].pieces[0][1] == "warning"
    light = replace(run, info=samples.info("run", "light"))
    assert [line.text for line in summary(light)].count(f"  {LOAD}") == 1


NO_TORCH = CollectorStatus("hooks", "ok", code="hooks-loaded", values={"python": 1, "torch": 0})


def info(state: str, code: int | None, *statuses: CollectorStatus) -> RunInfo:
    return RunInfo(
        1, "r", "r", ("x",), begin=10**9, end=10**9 + 10**8, state=state, exit_code=code, collectors=statuses
    )


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("complete", 0, ""),
        ("failed", 2, "failed after 100 ms with exit code 2"),
        ("failed", -9, "failed after 100 ms by SIGKILL"),
        ("interrupted", -2, "was interrupted after 100 ms by SIGINT"),
        ("failed", None, "failed after 100 ms"),
        ("failed", -999, "failed after 100 ms by signal 999"),
    ],
)
def test_the_words(state: str, code: int | None, words: str) -> None:
    assert exit_status(info(state, code)) == words


def test_before_torch() -> None:
    assert exit_status(info("failed", 2, NO_TORCH)).endswith("with exit code 2, before it imported torch")


@pytest.mark.parametrize("own", [True, False])
def test_the_report_says_it_first(own: bool) -> None:
    step = {"step_time": Measure("step_time", 0.1, "s", n=9)}
    analysis = Analysis(
        info("failed", 1), step, {}, {}, verdict="Slow.", step=None if own else StepDefinition(StepKind.WHOLE_RUN)
    )
    first = build_report(analysis).sections[0]
    said = [block for block in first.brief if isinstance(block, Callout)]
    assert "failed after 100 ms with exit code 1" in said[-1].full_text()
    assert (said[0].full_text() == "Slow.") is own, "a time that it took to fail has no cure"
