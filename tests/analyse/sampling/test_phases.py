"""What is forward and what comes after the optimizer, where both run the model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.sampling.phases import _main_lines
from profiler.analyse.sampling.stacks import Stacks
from profiler.diagnose.findings import find
from profiler.report.finding_text import finding_sentence
from profiler.run.model import Site, StepDefinition, StepKind
from tests.analyse.sampling.test_attribute import GRAPH, Part, program
from tests.analyse.sampling.test_frames import ADAM, ENGINE, LINEAR, MODULE, STEP


def parts(around: str) -> tuple[Part, ...]:
    """Forward, backward, optimizer and an evaluation after it; all but the latter below `around` if it is given."""
    below = ("t.py:30:main", around) if around else ()
    line = "{}:step" if around else "{}:main"

    def at(number: int) -> str:
        return "t.py:" + line.format(number)

    return (
        Part(20, ("t.py:30:main", at(5), MODULE, LINEAR) if around else (at(5), MODULE, LINEAR), gil=0.2),
        Part(20, (*below[:1], at(6), *ENGINE, GRAPH), gil=0.1, region="backward"),
        Part(10, (*below[:1], at(7), STEP, ADAM), gil=0.5, region="optimizer"),
        Part(50, ("t.py:36:main", "t.py:22:evaluate", MODULE, LINEAR), gil=0.2),
    )


@pytest.mark.parametrize("around", ["", "t.py:5:step"], ids=["in the loop itself", "the step in a function"])
def test_an_evaluation_after_the_step_is_not_forward(around: str) -> None:
    phases = {phase.name: phase for phase in analyse(program(3, parts(around))).phases}
    assert phases["after the optimizer"].share == pytest.approx(0.5, abs=0.08)
    assert phases["forward"].share == pytest.approx(0.2, abs=0.08)
    assert (str(phases["after the optimizer"].site), phases["after the optimizer"].calls) == (
        "t.py:36 (main)",
        "evaluate",
    )


def test_an_optimizer_without_samples_is_where_its_operators_were_counted() -> None:
    without = [part for part in parts("") if part.region != "optimizer"]
    row = [[["t.py", 7, "main"]], False, "optimizer", 6, 1e-5, 6, 1e-5]
    assert all(phase.name != "after the optimizer" for phase in analyse(program(3, without)).phases)
    phases = {phase.name: phase for phase in analyse(program(3, without, operators={"lines": [row]})).phases}
    assert phases["after the optimizer"].calls == "evaluate"
    assert phases["forward"].share == pytest.approx(20 / 90, abs=0.08)


def test_passes_between_two_updates_are_not_after_the_optimizer() -> None:
    """A GAN updates one model, then the other, and few samples show the short second update."""
    second = (
        Part(30, ("t.py:8:main", MODULE, LINEAR), gil=0.2),
        Part(20, ("t.py:9:main", *ENGINE, GRAPH), gil=0.1, region="backward"),
    )
    phases = {phase.name: phase for phase in analyse(program(3, (*parts("")[:3], *second))).phases}
    assert "after the optimizer" not in phases
    assert phases["forward"].share == pytest.approx(0.5, abs=0.08)


def test_a_phase_whose_samples_all_lie_in_a_stage_has_no_line() -> None:
    assert _main_lines({(Site("t.py", 1, "f"), ""): 0.0}, Stacks(program(3, parts("")))) == ((None, ""), ())


def test_of_a_phase_without_a_main_line_the_largest_are_named() -> None:
    after = (Part(20, (f"t.py:{line}:main", f"t.py:{line - 30}:work{line}")) for line in (36, 37, 38))
    analysis = analyse(program(3, (*parts("")[1:3], *after)))
    phase = next(phase for phase in analysis.phases if phase.name == "after the optimizer")
    assert phase.site is None
    assert sorted(site.line for site in phase.further) == [36, 37, 38]


def test_in_steps_that_the_program_marks_nothing_comes_after_the_optimizer() -> None:
    run = program(3, parts(""))
    marked = replace(run.info, facts={**run.info.facts, "package": "/somewhere/profiler"})
    phases = {
        phase.name: phase for phase in analyse(replace(run, step=StepDefinition(StepKind.MARKED), info=marked)).phases
    }
    assert "after the optimizer" not in phases
    assert phases["optimizer"].share == pytest.approx(0.1, abs=0.03)
    assert phases["forward"].share == pytest.approx(0.7, abs=0.08)


def test_an_optimizer_that_takes_most_of_a_step_is_a_cause_and_its_time_is_in_no_other() -> None:
    steps = (*parts("")[:2], Part(60, ("t.py:7:main", STEP, ADAM), gil=0.5, region="optimizer"))
    analysis = analyse(program(3, steps))
    optimizer = next(phase for phase in analysis.phases if phase.name == "optimizer")
    assert sum(optimizer.categories.values()) == pytest.approx(optimizer.seconds_per_step)
    told = [finding for finding in find(analysis, ()).findings if finding.is_told]
    assert finding_sentence(told[0]) == "optimizer.step() takes 60% (53 to 67%) of each step, at t.py:7, in main()."
    assert sum(finding.share for finding in told) <= 1.001


def test_waits_for_a_core_are_not_counted_with_what_runs_after_the_optimizer() -> None:
    analysis = analyse(program(3, parts("")))
    after = next(phase for phase in analysis.phases if phase.name == "after the optimizer")
    (told,) = (each for each in find(analysis, ()).findings if each.rule.name == after.name)
    assert told.share == pytest.approx(after.share, rel=0.01)
    assert "core" not in told.costs


def test_samples_in_the_recorder_are_no_time_of_the_line_that_calls_it() -> None:
    hook = "/v/site-packages/profiler/agent/hooks/optimizers.py:111:end"
    recorder = "/v/site-packages/profiler/agent/recorder.py:254:begin_boundary"
    work = Part(80, ("t.py:5:main",), gil=1.0)
    parser = "/v/site-packages/profiler/agent/hooks/_source.py:60:__init__"
    alone, recorded, parsed = (
        analyse(program(3, (work, Part(20, ("t.py:7:main", STEP, hook, *more)))))
        for more in ((), (recorder,), (parser, "/usr/lib/python3.11/ast.py:50:parse"))
    )
    assert [line.site.line for line in parsed.lines] == [5]
    assert {line.site.line for line in alone.lines} == {5, 7}
    assert [(line.site.line, line.share) for line in recorded.lines] == [(5, pytest.approx(1.0))]
