"""A run whose steps are a small part of it: what took the rest, when, and how to make it cheaper."""

from __future__ import annotations

from profiler import analyse_run
from profiler.analyse.model.analysis import Analysis
from profiler.report.build import build_report
from profiler.report.finding_text import finding_text, lead_finding
from tests.recorded.builders import MS, RunBuilder

STEPS = 20
TABLE = ("train.py:9:<module>", "train.py:20:make_table")
LIBRARY = ("train.py:12:<module>", "/usr/lib/python3.11/site-packages/centres/kmeans.py:9:move")
STEP = ("train.py:40:train",)


def analysis(
    before: tuple[str, ...], seconds: float, step_ms: int = 10, state: str = "complete", after: tuple[str, ...] = ()
) -> Analysis:
    """A run with 20 steps of `step_ms` after `seconds` of other work; where there is work after them, for 6 s."""
    builder, start = RunBuilder(device="cpu", state=state, span=(1, 20_000 * MS)), round(seconds * 1_000) * MS
    for now in range(0, start, 10 * MS):
        builder.stack(before, now, now + 10 * MS)
    builder.steps(STEPS, step_ms * MS, begin=start)
    for now in range(start, start + STEPS * step_ms * MS, 10 * MS):
        builder.stack(STEP, now, now + 10 * MS)
    end = start + STEPS * step_ms * MS
    for now in range(end, end + 6_000 * MS if after else end, 10 * MS):
        builder.stack(after, now, now + 10 * MS)
    return analyse_run(builder.build())


def test_the_code_of_the_program_leads_where_the_steps_are_a_small_part() -> None:
    found = analysis(TABLE, 4.0)
    lead, first = lead_finding(found), build_report(found).first
    assert lead is not None
    assert lead.sites[0].line == 20
    assert first.headline.text.startswith("The program's own code at train.py:20, in make_table(), took 4.00 s before")
    assert any(sentence.startswith("The measured steps take ") for sentence in first.why)
    assert "store it in a file" in first.actions[0].title
    assert not lead.gains, "a run has no gain per step"


def test_code_of_a_library_is_told_but_does_not_lead() -> None:
    found = analysis(LIBRARY, 4.0)
    lead = lead_finding(found)
    assert lead is None or not lead.is_part_of_run
    assert any("Code of centres at train.py:12" in sentence for sentence in found.details)


def test_a_run_that_was_ended_early_has_few_steps_for_that_reason() -> None:
    found = analysis(TABLE, 4.0, state="interrupted")
    lead = lead_finding(found)
    assert lead is None or not lead.is_part_of_run
    part = next(each for each in found.findings if each.is_part_of_run)
    assert not finding_text(part).fix


def test_what_follows_the_steps_of_a_run_that_was_ended_there_leads() -> None:
    ranking = ("train.py:9:<module>", "train.py:60:rank")
    lead = lead_finding(analysis(TABLE, 4.0, state="interrupted", after=ranking))
    assert lead is not None
    assert lead.sites[0].line == 60


def test_what_takes_less_than_the_steps_is_not_told() -> None:
    assert not [each for each in analysis(TABLE, 0.5, step_ms=50).findings if each.is_part_of_run]
    more = [each for each in analysis(TABLE, 1.5, step_ms=50).findings if each.is_part_of_run]
    assert [each.sites[0].line for each in more] == [20], "it takes more than the steps, which are no small part"
