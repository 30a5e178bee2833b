"""Evaluation, roll-outs and compilation as exact intervals, and the whole run by stage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.intervals import Intervals
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.host import INTERRUPTIONS, Stage, StageCost
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.sampling.stages import StageSpans, stage_costs, stage_spans
from profiler.analyse.statistics import share_interval
from profiler.analyse.window import measured_window
from profiler.run.model import Run, Site, StepDefinition, StepKind
from profiler.run.tables import BoundaryKind, StageKind
from tests.analyse.sampling.test_frames import MODULE
from tests.recorded.builders import MS, RunBuilder

EVAL, TRAIN, NO_GRAD, COMPILE = StageKind.EVAL_MODE, StageKind.TRAIN_MODE, StageKind.NO_GRAD, StageKind.COMPILE
STEPS = 12
Event = tuple[StageKind, float, float | None]
"""Kind, begin and end in ms; a change of mode has no end."""
LOOP = "train.py:50:main"


def build(*events: Event, batches: tuple[float, ...] = (), name: str = "", marked: tuple[int, ...] = ()) -> Run:
    """Steps of 10 ms from 10 ms on, with what hooks saw of stages (ms), and a stack for each block in function `name`.

    The first boundary is at 10 ms, and a backward pass comes 3 ms before each.
    """
    builder = RunBuilder(device="cpu", span=(1, (STEPS + 3) * 10 * MS))
    builder.boundary(10 * MS)
    for number in range(1, STEPS + 1):
        builder.step(number * 10 * MS, (number + 1) * 10 * MS)
        builder.boundary((number + 1) * 10 * MS)
        builder.stack([LOOP, "model.py:3:forward"], (number * 10 + 6) * MS, (number * 10 + 10) * MS)
    for time in batches:
        builder.boundary(round(time * MS), BoundaryKind.LOADER, name="DataLoader")
    if marked:
        builder.region("evaluation", *(time * MS for time in marked))
    for kind, begin, end in events:
        passes = int(begin + 3) // 10
        begin_ns, end_ns = round(begin * MS), None if end is None else round(end * MS)
        builder.stage(kind, begin_ns, end_ns, object_id=passes if kind is NO_GRAD else 7)
        if end_ns and name:
            model = [MODULE] * (name != "clip_gradients")
            builder.stack(["train.py:60:main", f"train.py:20:{name}", *model], begin_ns, end_ns)
    return replace(builder.build(), step=StepDefinition(StepKind.OPTIMIZER, (("Adam",),)))


def spans(run: Run) -> dict[str, list[tuple[float, float]]]:
    found = stage_spans(Stacks(run), measured_window(run)).spans
    return {
        stage.value: [(begin / MS, end / MS) for begin, end in zip(part.begin, part.end, strict=True)]
        for stage, part in found.items()
        if len(part)
    }


BY_HAND = tuple((NO_GRAD, 10.0 * number + 8, 10.0 * number + 9.9) for number in range(1, STEPS))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([(EVAL, 32, None), (TRAIN, 36, None)], [(32, 36)], id="there and back"),
        pytest.param([(EVAL, 32, None), (NO_GRAD, 32.5, 35), (TRAIN, 39, None)], [(32, 35)], id="back at a step"),
        pytest.param([(EVAL, 32, None), (NO_GRAD, 32.5, 35)], [(32, 35)], id="back by an attribute"),
        pytest.param([(EVAL, 135, None), (NO_GRAD, 136, 140)], [(135, 140)], id="after the training"),
        pytest.param([(EVAL, 32, None)], [], id="training in evaluation mode"),
        pytest.param([(EVAL, 2, None), *[(NO_GRAD, 10 * n + 2, 10 * n + 5) for n in range(1, 13)]], [], id="a teacher"),
        pytest.param(BY_HAND, [], id="updates by hand"),
        pytest.param([(NO_GRAD, 1, 9)], [], id="set-up"),
    ],
)
def test_evaluation_mode(events: list[Event], expected: list[tuple[float, float]]) -> None:
    assert spans(build(*events)) == ({"evaluation": expected} if expected else {})


def test_batches_without_gradients_are_an_evaluation() -> None:
    assert spans(build((NO_GRAD, 32, 36), batches=(12, 33, 34, 42))) == {"evaluation": [(32, 36)]}


def test_a_region_of_that_name_is_an_evaluation() -> None:
    assert spans(build(marked=(32, 36))) == {"evaluation": [(32, 36)]}


@pytest.mark.parametrize(
    ("function", "stage"),
    [
        ("collect_rollouts", "roll-out"),
        ("Trainer.evaluate", "evaluation"),
        ("estimate_loss", "evaluation"),
        ("draw", "without gradients"),
        ("clip_gradients", ""),  # it runs no model: an update that a busy machine makes long
        ("", ""),
    ],
)
def test_unusual_work_without_gradients_is_named_after_its_functions(function: str, stage: str) -> None:
    run = build(*BY_HAND, (NO_GRAD, 41, 43), (NO_GRAD, 44, 46.5), name=function)
    assert spans(run) == ({stage: [(41, 46.5)]} if stage else {})


def test_what_steps_with_a_stage_take_more_than_others() -> None:
    """Steps of 10 ms; every 4th evaluates and takes 20 ms more, every 2nd writes a checkpoint and takes 6 ms more, of
    which 4 ms are recorded. In every 8th, the thread waits 8 ms for a core."""
    number = np.arange(80)
    wall = 10 + 20 * (number % 4 == 0) + 6 * (number % 2 == 0) + 8 * (number % 8 == 1)
    end = np.cumsum(wall) * MS
    begin = end - wall * MS
    window = replace(measured_window(build()), begin=begin, end=end)

    def costs(evaluates: npt.NDArray[np.bool_], saves: npt.NDArray[np.bool_]) -> dict[Stage, StageCost]:
        stages = {
            Stage.EVALUATION: Intervals(begin[evaluates], begin[evaluates] + 5 * MS),
            Stage.CHECKPOINT: Intervals(end[saves] - 4 * MS, end[saves]),
        }
        return stage_costs(window, StageSpans(stages), 8.0 * MS * (number % 8 == 1))

    both = costs(number % 4 == 0, number % 2 == 0)
    assert {stage: cost.seconds for stage, cost in both.items()} == {
        Stage.EVALUATION: pytest.approx(0.005),
        Stage.CHECKPOINT: pytest.approx(0.003),
    }
    assert all(cost.low <= cost.seconds <= cost.high for cost in both.values())
    assert costs(number % 4 == 0, number % 4 == 0) == {}, "which of them it is cannot be told"
    assert set(costs(number % 4 == 0, number < 9)) == {Stage.EVALUATION}, "too few"
    assert set(costs(number % 4 == 0, number >= 0)) == {Stage.EVALUATION}, "no step without it"


def test_an_interval_without_samples_is_of_the_stage_that_the_others_show() -> None:
    played = build(*BY_HAND, (NO_GRAD, 40.5, 45.9), (NO_GRAD, 70.5, 75.9), name="collect_rollouts")
    seen = played.stacks[played.stacks["begin"] != 70.5 * MS]

    assert len(seen) < len(played.stacks)
    assert spans(replace(played, stacks=seen)) == {"roll-out": [(40.5, 45.9), (70.5, 75.9)]}


def test_an_environment_in_some_stretches_names_all_that_are_as_long() -> None:
    """Most samples of a roll-out lie in the policy, whose functions have any names."""
    lengths = [(40.5, 45.9), (50.5, 56), (60.5, 65.8), (70.5, 76)]
    played = build(*BY_HAND, *((NO_GRAD, *length) for length in lengths), name="choose")
    number = len(played.stack_frames)
    cartpole = (Site("/lib/gymnasium/envs/cartpole.py", 165, "CartPoleEnv.step"),)
    stacks = played.stacks.copy()
    stacks["stack"][stacks["begin"] == 40.5 * MS] = number
    stacks["stack"][stacks["begin"] == 50.5 * MS] = number

    run = replace(played, stacks=stacks, stack_frames=(*played.stack_frames, cartpole))
    assert spans(run) == {"roll-out": lengths}


def test_functions_of_torch_name_no_stage() -> None:
    """Distributions validate each sample."""
    run = build(*BY_HAND, (NO_GRAD, 41, 46.5), name="draw")
    frames = [
        (
            *stack,
            Site(
                "/v/lib/python3.11/site-packages/torch/distributions/distribution.py",
                287,
                "Distribution._validate_sample",
            ),
        )
        for stack in run.stack_frames
    ]
    assert spans(replace(run, stack_frames=tuple(frames))) == {"without gradients": [(41, 46.5)]}


def test_a_roll_out_in_evaluation_mode_is_a_roll_out() -> None:
    run = build((EVAL, 32, None), (NO_GRAD, 32, 36), (TRAIN, 36, None), name="play_episode")
    assert spans(run) == {"roll-out": [(32, 36)]}


def test_compilation_within_an_evaluation_is_compilation() -> None:
    run = build((EVAL, 32, None), (NO_GRAD, 32, 38), (COMPILE, 33, 35), (TRAIN, 38, None))
    assert spans(run) == {"compile": [(33, 35)], "evaluation": [(32, 33), (35, 38)]}


def test_phases_give_what_runs_in_an_evaluation_to_it() -> None:
    events = [(kind, time, None) for n in range(2, STEPS) for kind, time in ((EVAL, 10 * n), (TRAIN, 10 * n + 4))]
    run = build(*events)
    builder = RunBuilder()
    for n in range(2, STEPS):
        builder.stack(["train.py:40:main", "train.py:9:evaluate", "model.py:3:forward"], 10 * n * MS, (10 * n + 4) * MS)
    shift = len(run.stack_frames)
    extra = builder.build().stacks.copy()
    extra["stack"] += shift
    run = replace(
        run,
        stacks=np.concatenate([run.stacks, extra]),
        stack_frames=(*run.stack_frames, *builder.build().stack_frames),
    )
    phases = {phase.name: phase for phase in analyse(run).phases}
    evaluation = phases[Stage.EVALUATION]
    assert evaluation.share == evaluation.low == pytest.approx(10 * 4 / (STEPS * 10))
    assert (str(evaluation.site), evaluation.calls) == ("train.py:40 (main)", "evaluate")
    assert sum(phase.share for phase in phases.values()) == pytest.approx(1)


def with_evaluations(*stacks: tuple[float, float, list[str]]) -> Analysis:
    """Steps with 4 ms of evaluation in each, and these stacks from a begin to an end, in ms after that of a step."""
    run = build(*((kind, time, None) for n in range(2, STEPS) for kind, time in ((EVAL, 10 * n), (TRAIN, 10 * n + 4))))
    builder = RunBuilder()
    for n in range(2, STEPS):
        for begin, end, frames in stacks:
            builder.stack(frames, round((10 * n + begin) * MS), round((10 * n + end) * MS))
    extra = builder.build()
    rows = extra.stacks.copy()
    rows["stack"] += len(run.stack_frames)
    frames_of_all = (*run.stack_frames, *extra.stack_frames)
    return analyse(replace(run, stacks=np.concatenate([run.stacks, rows]), stack_frames=frames_of_all))


def evaluation_of(analysis: Analysis) -> tuple[str, str]:
    phase = next(phase for phase in analysis.phases if phase.name == Stage.EVALUATION)
    return str(phase.site), phase.calls


def test_an_evaluation_is_placed_at_the_call_below_which_it_runs() -> None:
    """`finish` does other work too, though so little that nearly all of its samples lie in the evaluation."""
    way = ["train.py:55:main", "train.py:40:finish", "train.py:30:Trainer.validate"]
    evaluating = [(0.0, 3.5, [*way, "train.py:31:Trainer.validate.<locals>.<listcomp>"]), (3.5, 4.0, way)]
    rest = (4.0, 4.5, ["train.py:55:main", "train.py:41:finish"])
    assert evaluation_of(with_evaluations(*evaluating, rest)) == ("train.py:40 (finish)", "Trainer.validate")


def test_an_evaluation_by_several_functions_is_placed_above_them() -> None:
    halves = (
        (2.0 * half, 2.0 * half + 2.0, ["train.py:60:main", f"train.py:4{half}:evaluate", f"model.py:9:part{half}"])
        for half in range(2)
    )
    assert evaluation_of(with_evaluations(*halves)) == ("train.py:60 (main)", "evaluate")


def test_a_stage_that_a_library_runs_is_placed_at_a_line_of_the_library() -> None:
    main, library = "train.py:9:main", "/env/lib/python3.11/site-packages/rl/algo.py"
    builder = RunBuilder(device="cpu", span=(1, (STEPS + 3) * 10 * MS))
    builder.boundary(10 * MS)
    for number in range(1, STEPS + 1):
        begin = number * 10 * MS
        builder.step(begin, begin + 10 * MS)
        builder.stage(EVAL, begin, object_id=7)
        builder.stage(TRAIN, begin + 6 * MS, object_id=7)
        builder.stack([main, f"{library}:30:learn", f"{library}:80:collect"], begin, begin + 6 * MS)
        builder.stack([main, f"{library}:40:learn", MODULE], begin + 6 * MS, begin + 10 * MS)
        builder.boundary(begin + 10 * MS)
    run = replace(builder.build(), step=StepDefinition(StepKind.OPTIMIZER, (("Adam",),)))
    rollout = next(phase for phase in analyse(run).phases if phase.name == Stage.ROLLOUT)
    assert rollout.site is not None
    assert (rollout.site.line, rollout.calls) == (30, "collect")


def test_the_stages_sum_to_the_run() -> None:
    analysis: Analysis = analyse(build((EVAL, 32, None), (TRAIN, 38, None), (EVAL, 134, None), (NO_GRAD, 135, 140)))
    stages = {row.stage: row.seconds for row in analysis.stages}
    assert stages == {
        Stage.TRAIN: pytest.approx(0.124),
        Stage.EVALUATION: pytest.approx(0.012),
        Stage.END: pytest.approx(0.014),
    }
    assert sum(row.share for row in analysis.stages) == pytest.approx(1)


def test_imports_are_the_sampled_part_of_the_start() -> None:
    run = build()
    builder = RunBuilder(device="cpu", span=(0, 0))
    builder.stack(["train.py:1:<module>", "<frozen importlib._bootstrap>:1:_find_and_load"], -60 * MS, -30 * MS)
    builder.stack(["train.py:2:<module>"], -30 * MS, 0)
    extra = builder.build()
    stacks = extra.stacks.copy()
    stacks["stack"] += len(run.stack_frames)
    run = replace(
        run,
        info=replace(run.info, begin=-60 * MS),
        stacks=np.concatenate([run.stacks, stacks]),
        stack_frames=(*run.stack_frames, *extra.stack_frames),
    )
    stages = {row.stage: row for row in analyse(run).stages}
    assert stages[Stage.IMPORT].seconds == stages[Stage.START].seconds == pytest.approx(0.03)
    imports = stages[Stage.IMPORT]
    ends = [end / (2 * imports.share) for end in (imports.low, imports.high)]
    assert ends == pytest.approx(share_interval(0.5, 2)), "two samples"


def test_interruptions_are_stages_that_reports_know() -> None:
    from profiler.report.sections.lines import PHASES

    assert {stage.value for stage in INTERRUPTIONS} <= set(PHASES)
