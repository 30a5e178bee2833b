"""The first screen: what limits a program, where, how much there is to gain, and what to do now."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from profiler.analyse.finding import Confidence, Finding, Gain, GainMethod, KnockOut, RuleText
from profiler.analyse.model import Analysis, Phase
from profiler.diagnose.model import RunVerdict
from profiler.report.blocks import FirstScreen, PhaseStrip
from profiler.report.build import build_report
from profiler.report.model import Results
from profiler.report.render import html, markdown
from profiler.report.render.console import SCREEN, print_first_screen
from profiler.run.model import Site
from tests.report import hook_samples, samples

LINE = Site("/home/somebody/train.py", 14, "Images.__getitem__")
RULE = RuleText("slow-dataset-item", "The dataset takes long for each item", (), "Make items cheaper.")


def first(results: Results) -> FirstScreen:
    screen = build_report(results).first
    assert screen is not None
    return screen


def finding(
    category: str = "input", method: GainMethod = GainMethod.BOUND, factor: float = 1.64, **more: Any
) -> Finding:
    gain = Gain(method, factor, factor, factor)
    rule = replace(RULE, **more)
    return Finding(rule, 0.039, 0.39, 0.39, 0.39, Confidence.HIGH, (LINE,), gains=(gain,), costs={category: 0.039})


def run(*findings: Finding) -> Analysis:
    return replace(hook_samples.run(), findings=findings, outcome=RunVerdict.COMPUTING, outcome_share=0.5)


def test_a_finding_about_input_is_a_wait_for_data_with_its_gain() -> None:
    screen = first(run(finding()))
    assert screen.headline.text == "Training waits for data 39% of every step: up to 1.6× to gain"
    assert screen.headline.highlight == "up to 1.6× to gain"
    assert screen.why[0] == "The dataset takes long for each item at train.py:14."
    assert screen.actions[0].title == "Make items cheaper"
    assert len(screen.actions) <= 3


def test_the_headline_and_the_strip_agree_on_the_wait_for_data() -> None:
    phases = (Phase("data", 0.05, 0.5, 0.5, 0.5), Phase("backward", 0.05, 0.5, 0.5, 0.5))
    screen = first(replace(run(finding()), phases=phases))
    assert screen.headline.before == "Training waits for data 50% of every step: "
    assert isinstance(screen.picture, PhaseStrip)
    assert screen.picture.segments[0].text == "50.0 ms"


@pytest.mark.parametrize(
    ("method", "factor", "gain"),
    [
        (GainMethod.BOUND, 1.64, "up to 1.6× to gain"),
        (GainMethod.REPLAY, 1.64, "about 1.6× to gain"),
        (GainMethod.KNOCK_OUT, 1.64, "1.6× to gain, as measured"),
        (GainMethod.BOUND, 5000.0, "more than 100× to gain"),
    ],
)
def test_the_headline_tells_how_sure_a_gain_is(method: GainMethod, factor: float, gain: str) -> None:
    screen = first(run(finding("python", method, factor)))
    assert screen.headline.text == f"The dataset takes long for each item: 39% of every step, {gain}"


def test_without_a_finding_the_screen_says_what_takes_the_time_and_how_to_go_on() -> None:
    screen = first(run())
    assert screen.headline.text == "Computing takes 50% of every step"
    assert not screen.headline.highlight
    assert any("compare --before" in action.command for action in screen.actions)


def test_the_strip_shows_the_step_after_the_first_change() -> None:
    picture = first(run(finding())).picture
    assert isinstance(picture, PhaseStrip)
    assert picture.changed == pytest.approx(sum(part.value for part in picture.segments) / 1.64)
    assert picture.change.endswith("at best")
    assert first(run()).picture == replace(picture, changed=None, change="")


def test_a_finding_that_try_can_measure_comes_with_the_command() -> None:
    commands = [action.command for action in first(run(finding(knock_out=KnockOut.STATEMENT))).actions]
    assert any(" try -- " in command for command in commands)
    measured = finding(method=GainMethod.KNOCK_OUT, knock_out=KnockOut.STATEMENT)
    assert not any(" try -- " in action.command for action in first(run(measured)).actions)


@pytest.mark.parametrize("make", [samples.comparison, samples.three_sides, samples.empty_comparison, hook_samples.run])
def test_every_renderer_shows_all_of_it(make: Any) -> None:
    report = build_report(make())
    screen = first(make())
    page, text = html.render(report), markdown.render(report)
    assert "<h1" in page
    assert f"# {markdown.escape(screen.headline.text)}" in text
    for action in screen.actions:
        assert markdown.escape(action.title) in text
    assert len(screen.why) <= 2
    assert len(screen.places) <= 6


@pytest.mark.parametrize("make", [samples.comparison, samples.three_sides, hook_samples.run, hook_samples.comparison])
def test_a_terminal_of_80_columns_shows_it_in_24_lines_without_breaking_words(make: Any) -> None:
    screen = first(make())
    drawn = io.StringIO()
    print_first_screen(screen, Console(file=drawn, width=80, color_system=None), SCREEN)
    lines = drawn.getvalue().splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 80
    words = " ".join(drawn.getvalue().split())
    assert screen.headline.text in words
    assert screen.actions[0].title in words or "…" in words


def test_fewer_lines_leave_out_notes_first() -> None:
    screen = first(run(finding(knock_out=KnockOut.STATEMENT)))
    drawn = {}
    for lines in (SCREEN, 17):
        stream = io.StringIO()
        print_first_screen(screen, Console(file=stream, width=80, color_system=None), lines)
        drawn[lines] = stream.getvalue()
        assert drawn[lines].count("\n") <= lines
    assert screen.actions[0].note[:40] in drawn[SCREEN]
    assert screen.actions[0].note[:40] not in drawn[17]
    assert screen.actions[0].title[:40] in drawn[17]
