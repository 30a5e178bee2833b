"""The first screen: what limits a program, where, how much there is to gain, and what to do now."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import profiler
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Confidence, Finding, Gain, GainMethod, KnockOut, RuleText
from profiler.analyse.model.host import Phase
from profiler.analyse.model.measures import Measure
from profiler.analyse.model.ranks import RankActivity, RankLedger, Straggler
from profiler.diagnose.model import RunDiagnosis, RunVerdict
from profiler.report.action_text import trial_commands
from profiler.report.blocks import FirstScreen, Headline, PhaseStrip
from profiler.report.build import build_report
from profiler.report.category_text import CATEGORIES, PHASES
from profiler.report.finding_text import finding_sentence, gain_text, lead_finding, left_out_text, prediction_texts
from profiler.report.model import Results
from profiler.report.render import html, markdown
from profiler.report.render.console import SCREEN, print_first_screen
from profiler.report.verdict_text import run_statement
from profiler.run.model import CollectorStatus, Site
from tests.approval.cases import recording
from tests.report import hook_samples, samples
from tests.report.wording import rest

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
    computing = rest("compute", 0.5)
    return replace(hook_samples.run(), findings=(*findings, computing), outcome=RunVerdict.COMPUTING)


def test_a_finding_about_input_is_a_wait_for_data_with_its_gain() -> None:
    screen = first(run(finding()))
    assert screen.headline.text == "Training waits for data 39% of every step: about 1.64× as fast without it"
    assert screen.headline.highlight == "about 1.64× as fast without it"
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
        (GainMethod.BOUND, 1.64, "about 1.64× as fast without it"),
        (GainMethod.REPLAY, 1.64, "about 1.64× as fast without it"),
        (GainMethod.KNOCK_OUT, 1.64, "1.64× as fast without it, as measured"),
        (GainMethod.BOUND, 5000.0, "more than 100× as fast without it"),
    ],
)
def test_the_headline_tells_how_sure_a_gain_is(method: GainMethod, factor: float, gain: str) -> None:
    screen = first(run(finding("python", method, factor)))
    assert screen.headline.text == f"The dataset takes long for each item: 39% of every step, {gain}"


def test_without_a_finding_the_screen_says_what_takes_the_time_and_how_to_go_on() -> None:
    screen = first(run())
    assert screen.headline.text == "Computing takes 50% of every step"
    assert not screen.headline.highlight
    assert any("check --baseline counters.json --update" in action.command for action in screen.actions)


def test_time_that_lines_hint_at_is_uncertain_and_not_unknown() -> None:
    unknown = replace(run(), outcome=RunVerdict.UNKNOWN_STEP, findings=(rest("unattributed", 0.55),))
    assert unknown.lines
    hinted = replace(unknown, lines=tuple(replace(line, unrecorded=0.1) for line in unknown.lines))
    assert first(unknown).headline.text == "What ran in 55% of every step is unknown"
    assert first(hinted).headline.text == "What ran in 55% of every step is uncertain"


def test_the_strip_shows_the_step_after_the_first_change() -> None:
    picture = first(run(finding())).picture
    assert isinstance(picture, PhaseStrip)
    assert picture.changed == pytest.approx(sum(part.value for part in picture.segments) / 1.64)
    assert picture.change.startswith("after the first change: about ")
    assert first(run()).picture == replace(picture, changed=None, change="")


def test_the_strip_names_the_rank_or_the_side_that_it_is_of() -> None:
    of_rank = first(profiler.read(recording("ranks"))).picture
    assert isinstance(of_rank, PhaseStrip)
    assert of_rank.label.startswith("A step of rank 0 now, on average: ")
    sides = {label: [recording(label)] for label in ("spikes", "slow-input")}
    of_side = first(profiler.compare(sides, anyway=True)).picture
    assert isinstance(of_side, PhaseStrip)
    assert of_side.label.startswith("A step of spikes, on average: ")
    assert of_side.changed is None, "what became of it is the other side"


def ranks(**seconds: tuple[float, float]) -> RankLedger:
    """Two ranks of 100 ms a step, of which rank 1 is late; the seconds of each category."""
    categories = [{name: each[rank] for name, each in seconds.items()} for rank in (0, 1)]
    both = tuple(RankActivity(rank, 9, 9, 0, 0.1, None, None, categories[rank]) for rank in (0, 1))
    return RankLedger(both, 1, True, Straggler(1, 0.06, "input", 0.06, 0.0), size=2)


def test_a_rank_that_waits_is_drawn_beside_the_late_one_on_one_scale() -> None:
    picture = first(replace(run(), ranks=ranks(compute=(0.04, 0.04), ranks=(0.06, 0.0), input=(0.0, 0.06)))).picture
    assert isinstance(picture, PhaseStrip)
    assert picture.label == "A step of rank 1 now, on average: 100 ms"
    assert [(part.label, part.text) for part in picture.segments] == [
        ("data loading", "60.0 ms"),
        ("compute", "40.0 ms"),
    ]
    assert picture.beside is not None
    assert picture.beside.label == "A step of rank 0, which waits for rank 1, on average: 100 ms"
    assert [(part.label, part.text) for part in picture.beside.segments] == [
        ("compute", "40.0 ms"),
        ("rank wait", "60.0 ms"),
    ]
    assert picture.width() == pytest.approx(0.1)
    assert [part.label for part in picture.legend()] == ["data loading", "compute", "rank wait"]
    report = build_report(replace(run(), ranks=ranks(compute=(0.04, 0.1), ranks=(0.06, 0.0))))
    assert "A step of rank 0, which waits for rank 1, on average: 100 ms" in html.render(report)
    assert "**A step of rank 0, which waits for rank 1, on average: 100 ms**" in markdown.render(report)
    drawn = io.StringIO()
    print_first_screen(FirstScreen((), Headline("h"), picture=picture), Console(file=drawn, width=100), SCREEN)
    assert drawn.getvalue().splitlines()[2::2] == [
        "█ data loading 60.0 ms  ▓ compute 40.0 ms",
        "▓ compute 40.0 ms  ▒ rank wait 60.0 ms",
    ]
    balanced = first(replace(run(), ranks=replace(ranks(compute=(0.1, 0.1)), straggler=None))).picture
    assert isinstance(balanced, PhaseStrip)
    assert balanced.beside is None


def test_the_headline_and_the_strip_agree_on_an_evaluation() -> None:
    """A finding costs less than the part of a step where that waits for a core."""
    phases = (Phase("evaluation", 0.07, 0.7, 0.7, 0.7), Phase("backward", 0.03, 0.3, 0.3, 0.3))
    evaluation = finding("compute", name="frequent-evaluation", title="Evaluation takes much", evidence=("66 ms",))
    evaluation = replace(evaluation, is_periodic=True)
    screen = first(replace(run(evaluation), phases=phases))
    assert screen.headline.before == "Evaluation takes much: 70% of the time of all steps, "
    assert screen.why == ("The rest is mostly backward (30%).",)


@pytest.mark.parametrize("name", PHASES)
def test_each_part_of_a_step_that_may_be_the_cause_has_a_strong_colour(name: str) -> None:
    assert PHASES[name][1] not in _QUIET


def test_each_category_that_may_be_the_cause_has_a_strong_colour() -> None:
    assert not {text.tone for name, text in CATEGORIES.items() if name != "unattributed"} & _QUIET


_QUIET = {"idle", "c9", "floor"}
"""Tones of grey in page.css."""


def test_a_program_that_starts_its_ranks_needs_no_launcher_in_its_command() -> None:
    both = replace(run(), ranks=ranks(compute=(0.1, 0.1)))

    def context(*argv: str) -> str:
        return first(replace(both, info=replace(both.info, argv=argv, label=""))).context_line()

    assert "2 ranks, which train starts itself" in context("/env/bin/python", "train.py")
    launched = profiler.read(recording("ranks"))
    assert "2 ranks" in first(launched).context
    for action in first(launched).actions:
        if action.command:
            assert "-m torch.distributed.run --standalone --nproc-per-node 2 ranks" in action.command


def test_a_finding_that_try_can_measure_comes_with_the_command() -> None:
    commands = [action.command for action in first(run(finding(knock_out=KnockOut.STATEMENT))).actions]
    assert any(" try --yes -- " in command for command in commands)
    measured = finding(method=GainMethod.KNOCK_OUT, knock_out=KnockOut.STATEMENT)
    assert not any(" try -- " in action.command for action in first(run(measured)).actions)


def test_a_finding_whose_gain_is_not_predicted_is_an_action_with_the_command_that_measures_it() -> None:
    unpredicted = replace(finding("compute", knock_out=KnockOut.SETTINGS, code="Adam(..., fused=True)"), gains=())
    screen = first(run(unpredicted))
    assert screen.why[-1] == "No gain is predicted: a recording does not tell how much such a change gives."
    cure, measure, *others = screen.actions
    assert (cure.title, cure.place, cure.code) == ("Make items cheaper", "train.py:14", "Adam(..., fused=True)")
    assert " try --yes -- " in measure.command
    assert not any("check --baseline" in action.command for action in others), "the program is not well yet"


def test_why_no_gain_is_predicted_does_not_contradict_the_findings() -> None:
    removable = "No gain is predicted: no rule found a cause that can be removed."
    assert first(run()).why[-1] == removable
    of_machine = replace(finding("core"), gains=())
    assert first(run(of_machine)).why[-1] == removable, "its rule tells nothing to write instead"
    small = finding("compute", GainMethod.KNOCK_OUT, 1.02, code="Adam(..., fused=True)")
    assert first(run(small)).why[-1] == (
        "No gain is predicted: no rule found a cause whose removal would make the program 5% faster."
    )


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
def test_a_terminal_of_80_columns_shows_it_in_24_lines_without_breaking_words(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    screen = first(make())
    drawn = io.StringIO()
    print_first_screen(screen, Console(file=drawn, width=80, color_system=None), SCREEN)
    lines = drawn.getvalue().splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 80
    words = " ".join(drawn.getvalue().split())
    assert screen.headline.text in words
    assert screen.actions[0].title in words or "…" in words


def test_later_actions_are_told_in_full_where_there_is_room_and_else_begin_with_their_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    other = finding("python", factor=1.5, name="log", title="Logging takes time", fix=f"Log {'much ' * 20}less often.")
    drawn = {}
    for most in (SCREEN, 17):
        stream = io.StringIO()
        print_first_screen(first(run(finding(), other)), Console(file=stream, width=80, color_system=None), most)
        drawn[most] = stream.getvalue().splitlines()
        assert "1. Make items cheaper: train.py:14" in drawn[most]
        assert max(map(len, drawn[most])) <= 80
    assert "less often: Logging takes time, train.py:14" in " ".join(map(str.strip, drawn[SCREEN]))
    (second,) = [line for line in drawn[17] if line.startswith("2. ")]
    assert second.startswith("2. train.py:14: Log much much")


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


def test_start_up_is_not_shown_as_the_lines_of_a_step() -> None:
    """None of the samples lies within the steps: the lines of the leading finding stand there without a share."""
    analysis = profiler.read(recording("slow-input"))
    assert analysis.threads[0].lines
    screen = first(analysis)
    assert [(place.share, place.location) for place in screen.places] == [
        (None, "slow_input.py:11 in Slow.__getitem__()")
    ]
    assert "no stack sample lies within the measured steps" in screen.places_note
    assert first(profiler.read(recording("plain-full"))).places == ()
    of_run = first(profiler.read(recording("attached")))
    assert of_run.places
    assert of_run.places_note.startswith("Shares of the run")


def test_the_line_of_the_leading_finding_is_among_the_lines() -> None:
    for name in ("evaluation", "detail-as-found", "spikes", "marked"):
        analysis = profiler.read(recording(name))
        lead = lead_finding(analysis)
        assert lead is not None
        site, places = lead.sites[0], first(analysis).places
        functions = {place.location.rpartition(" in ")[2] for place in places}
        assert f"{site.file}:{site.line}" in [place.path for place in places] or f"{site.function}()" in functions
        assert html.render(build_report(analysis))
    (unsampled,) = (place for place in first(profiler.read(recording("evaluation"))).places if place.share is None)
    assert unsampled.source.startswith("print(")


def test_a_line_is_listed_once_though_its_hook_names_the_whole_path() -> None:
    analysis = profiler.read(recording("detail-as-found"))
    line = analysis.lines[0].site
    cause = replace(finding(), sites=(replace(line, file=f"/srv/{line.file}"),))
    places = first(replace(analysis, findings=(cause,), outcome=RunVerdict.COMPUTING)).places
    assert all(place.share is not None for place in places)


def test_speed_is_only_kept_where_nothing_is_known_to_be_wrong() -> None:
    def titles(name: str) -> list[str]:
        return [action.title for action in first(profiler.read(recording(name))).actions]

    for name in ("lm-as-found-light", "crashed", "made-up-lines", "made-up-two-devices", "ctrl-c"):
        assert not any(title.startswith("Keep") for title in titles(name)), name
    assert "Keep it as fast as it is" in titles("lm-fixed-light")
    assert titles("crashed")[0].startswith("Repair the error")
    for name in ("syncing", "gan"):
        assert titles(name)[0] == "Let the program run for longer, and record it again", (
            "why time is unknown is not known"
        )
    assert titles("no-python") == [
        "If the program trains in a loop, call profiler.step() at the end of each step, and record it again"
    ]
    assert not any("COMMAND" in action.command for action in first(run()).actions if "compare" not in action.command)


def test_the_same_time_is_not_told_twice() -> None:
    for name in ("spikes", "evaluation"):
        screen = first(profiler.read(recording(name)))
        assert "of the time of all steps, up to about " in screen.headline.text


def test_a_gain_has_one_wording_and_one_that_is_none_is_left_out() -> None:
    bound = finding()
    screen = first(run(bound))
    shown = [screen.headline.text, screen.actions[0].note, gain_text(bound), finding_sentence(bound)]
    assert all("about 1.64×" in text for text in shown)
    assert "as fast" not in finding_sentence(finding(factor=1.001))
    assert prediction_texts(finding(factor=5000.0))[0].startswith("more than 100×")


def test_a_gain_that_may_be_larger_is_told_as_the_least() -> None:
    least = finding("python")
    least = replace(least, gains=tuple(replace(gain, is_least=True) for gain in least.gains))
    assert first(run(least)).headline.text.endswith("at least 1.64× as fast without it")
    assert prediction_texts(least)[0].endswith("; the cure makes the rest of the step faster too.")


@pytest.mark.parametrize(
    ("part", "left_out", "is_told"), [(0.39, 0.2, True), (0.39, 0.1, False), (0.1, 0.2, False), (0.85, 0.06, True)]
)
def test_what_a_share_leaves_out_is_told_where_it_differs_from_the_strip(
    part: float, left_out: float, is_told: bool
) -> None:
    assert bool(left_out_text(replace(finding(), share=part, left_out=left_out))) == is_told


def test_other_code_is_told_where_it_is_much_of_the_rest() -> None:
    phases = [
        Phase(name, part, part, part, part) for name, part in (("data", 0.39), ("elsewhere", 0.4), ("forward", 0.2))
    ]
    screen = first(replace(run(finding()), phases=tuple(phases)))
    assert "The rest is mostly other code (40%) and forward (20%)." in screen.why
    less = replace(phases[0], share=0.3, seconds_per_step=0.3)
    screen = first(replace(run(finding()), phases=(less, *phases[1:])))
    assert screen.headline.text.startswith("Training waits for data 39% "), "a part of it is no phase of its own"


def test_a_measured_gain_leaves_nothing_out() -> None:
    measured = replace(finding(method=GainMethod.KNOCK_OUT), share=0.5, left_out=0.6)
    assert left_out_text(measured).startswith("Shares are of the program's own time: other programs and recording took")
    assert left_out_text(finding()) == ""


def test_a_verdict_whose_shares_have_two_wholes_tells_it() -> None:
    run = RunDiagnosis(RunVerdict.CAUSE, findings=(replace(finding(), left_out=0.6),))
    assert run_statement(run).details[-1].startswith("Shares are of the program's own time: other")
    assert "own time" not in " ".join(run_statement(replace(run, findings=(finding(),))).details)


def test_a_run_directory_that_ended_is_tried_without_recording_again(tmp_path: Path) -> None:
    analysis = run(finding(knock_out=KnockOut.LINE))
    complete = replace(analysis, path=tmp_path / "run", info=replace(analysis.info, end=5))
    asking, command = trial_commands(complete)
    assert asking.endswith(f" try {tmp_path / 'run'}")
    assert command.endswith(f" try --yes {tmp_path / 'run'}")
    for other in (replace(complete, info=replace(analysis.info, end=None)), replace(complete, path=None)):
        assert " try --yes -- " in trial_commands(other)[1]
    assert " try --yes -- " in trial_commands(replace(complete, path=tmp_path / "run.zip"))[1]


def test_on_a_busy_machine_headline_finding_and_strip_agree() -> None:
    """Training waits for data half of the time that it has a core, and for a core 60% of all time."""
    waits = {"input": 0.02, "compute": 0.02, "core": 0.06}
    phases = (Phase("data", 0.05, 0.5, 0.5, 0.5), Phase("forward", 0.05, 0.5, 0.5, 0.5))
    quiet = replace(run(replace(finding(), share=0.5)), phases=phases)
    assert first(quiet).headline.text.startswith("Training waits for data 50% ")
    part = replace(finding(), share=0.4, left_out=0.6)  # the rest of the wait has another cause
    busy = replace(
        quiet,
        findings=(part,),
        measures={"step_time": Measure("step_time", 0.1, "s", 100)},
        breakdown={name: Measure(name, seconds, "s") for name, seconds in waits.items()},
    )
    screen = first(busy)
    assert screen.headline.text.startswith("Training waits for data 50% ")
    assert screen.headline.text.endswith("about 1.64× as fast after the first change")
    assert not any("The rest is mostly" in sentence for sentence in screen.why), "phases contain waits"
    assert isinstance(screen.picture, PhaseStrip)
    parts = {segment.label: segment.value for segment in screen.picture.segments}
    assert parts == {"data loading": 0.02, "compute": 0.02, "core wait": 0.06}


@pytest.mark.parametrize(
    "name", ["plain-light", "lm-fixed-light", "attached", "recorder-killed", "no-python", "scaler"]
)
def test_why_says_more_than_the_headline(name: str) -> None:
    analysis = profiler.read(recording(name))
    screen = first(analysis)
    assert analysis.headline not in screen.why
    assert not any(sentence.startswith(screen.headline.text) for sentence in screen.why)
    if name == "scaler":
        assert screen.why[0] == "No stack sample lies within the measured steps; record for longer."


def test_a_longer_recording_is_not_advised_where_stacks_cannot_be_sampled() -> None:
    analysis = profiler.read(recording("gan"))
    status = CollectorStatus("stacks", "unavailable", "py-spy is not installed: pip install py-spy")
    info = replace(analysis.info, level="standard", collectors=(status,))
    screen = first(replace(analysis, lines=(), info=info))
    assert "No gain is predicted: without stack samples, no cause can be told." in screen.why
    action = screen.actions[0]
    assert (action.title, action.text) == ("Let stacks be sampled, and record the program again", status.reason)


def test_a_trial_is_offered_only_where_it_knows_what_to_change() -> None:
    def commands(cause: Finding) -> list[str]:
        return [action.command for action in first(run(cause)).actions if " try " in action.command]

    setting = finding(knock_out=KnockOut.SETTINGS, settings={"loader": {"num_workers": "suggested"}})
    assert commands(setting) == [], "the number of workers is not known"
    assert commands(replace(setting, values={"suggested": 2}))
    assert commands(finding(knock_out=KnockOut.LINE))
    assert commands(replace(finding(knock_out=KnockOut.LINE), sites=())) == []


def test_a_long_command_is_shown_whole() -> None:
    words = ("train.py", *(f"--option-{number}=value" for number in range(9)))
    healthy, slow = (
        [each.command for each in first(replace(made, info=replace(made.info, argv=words))).actions]
        for made in (run(), run(finding("python", GainMethod.BOUND, 1.64)))
    )
    assert any(command.endswith(" ".join(words)) for command in healthy)
    assert any(f"--before '{' '.join(words)}' --after 'train_changed.py " in command for command in slow)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("train.py", "--steps", "30"), "train.py --steps 150"),
        (("train.py", "--max_epochs=3", "-v"), "train.py --max_epochs=15 -v"),
        (
            ("train.py", "--num_train_epochs", "3", "--max_steps", "100"),
            "train.py --num_train_epochs 3 --max_steps 100",
        ),
        (("train.py", "--lr", "3"), "train.py --lr 3"),
        (("train.py", "--steps"), "train.py --steps"),
    ],
)
def test_a_recording_that_is_too_short_is_made_longer_by_its_own_option(words: tuple[str, ...], text: str) -> None:
    analysis = profiler.read(recording("forking"))  # 11 stack samples of 50
    action = first(replace(analysis, info=replace(analysis.info, argv=words))).actions[0]
    assert action.title == (
        "Record the program again, with about 5 times as many steps or epochs"
        if text == " ".join(words)
        else "Let the program run about 5 times as long, and record it again"
    )
    assert action.command.endswith(f"run -- {text}")


def test_how_much_longer_to_run_is_not_told_without_a_stack_sample() -> None:
    analysis = profiler.read(recording("interrupted"))
    action = first(replace(analysis, info=replace(analysis.info, argv=("train.py", "--steps", "30")))).actions
    [longer] = (each for each in action if each.title == "Let the program run for longer, and record it again")
    assert longer.command.endswith("run -- train.py --steps 30")


def test_a_program_that_is_no_script_is_compared_with_its_last_commit() -> None:
    analysis = run(finding("python", GainMethod.BOUND, 1.64))
    info = replace(analysis.info, argv=("python", "-m", "package"), git_commit="0" * 40)
    commands = [each.command for each in first(replace(analysis, info=info)).actions]
    assert any(command.endswith("check --against HEAD -- python -m package") for command in commands)


def test_a_program_that_the_command_contains_is_not_compared_with_a_commit() -> None:
    analysis = run(finding("python", GainMethod.BOUND, 1.64))
    info = replace(analysis.info, argv=("/env/bin/python3", "-u", "-c", "import loop; loop.run()"), git_commit="0" * 40)
    commands = [each.command for each in first(replace(analysis, info=info)).actions]
    assert not any("--against" in command for command in commands)
    assert any(command.endswith("--after COMMAND_OF_COPY") for command in commands)


def test_work_between_steps_is_no_part_of_every_step() -> None:
    evaluation = finding("python", name="frequent-evaluation", title="Evaluation takes much of the time")
    screen = first(run(replace(evaluation, is_periodic=True)))
    assert screen.headline.before == "Evaluation takes much of the time: 39% of the time of all steps, "


@pytest.mark.parametrize(("count", "others"), [(2, "the other rank"), (3, "the other ranks")])
def test_the_other_rank_of_two_is_one(count: int, others: str) -> None:
    ranks = tuple(RankActivity(rank, rank, 9, 0, 1.0, None, None) for rank in range(count))
    ledger = RankLedger(ranks, 0, synchronous=True, straggler=Straggler(1, 0.05, "input", 0.06, 0.01))
    assert first(replace(run(), ranks=ledger)).headline.text == f"Rank 1 makes {others} wait 50.0 ms of every step"
