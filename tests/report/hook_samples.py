"""A made-up run, and a comparison, of a program whose steps hooks found: parts, lines, threads, input, long steps."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison, Side
from profiler.analyse.model.host import (
    LineCost,
    Period,
    Phase,
    SpikeLine,
    Spikes,
    ThreadActivity,
    ThreadState,
    UnmeasuredPeriod,
)
from profiler.analyse.model.input import InputPart
from profiler.run.model import Site, StepDefinition, StepKind
from tests.report import samples

LOOP, LOG = Site("train.py", 41, "main"), Site("/home/somebody/code/metrics.py", 1107, "Metrics.log_everything")
FAR = Site(samples.LONG_PATH, 104, samples.HOSTILE, samples.HOSTILE)
BACKWARD = "torch.autograd.graph._engine_run_backward"
LINES = (
    LineCost(LOOP, BACKWARD, 0.06, 0.6, 0.55, 0.65, 300, {"compute": 0.06}),
    LineCost(LOG, "", 0.03, 0.3, 0.25, 0.35, 200, {"python": 0.02, "log": 0.0099, "input": 0.0001}),
    LineCost(FAR, "datasets.arrow.Dataset._getitem", 0.01, 0.1, 0.05, 0.15, 50, {"input": 0.01}),
)
PHASES = (
    Phase("backward", 0.06, 0.6, 0.6, 0.6, LOOP),
    Phase("after the optimizer", 0.03, 0.3, 0.2, 0.4, LOG, "log_everything"),
    Phase("elsewhere", 0.01, 0.1, 0.0, 0.2),
)
OUTSIDE = (UnmeasuredPeriod(Period.STARTUP, 5.0, LINES), UnmeasuredPeriod(Period.TEARDOWN, 1.0))
INPUT = (
    InputPart("dataset", "worker", 0.081, 0.81, Site("/home/somebody/code/rows.py", 1200, "Rows.__getitem__")),
    InputPart("waiting for workers", "main process", 0.03, 0.3),
)
SPIKES = Spikes(6, 60, 10, 26.0, 0.72, (SpikeLine(LOG, 0.75),), 150, enough=True)
DOING = ThreadActivity(
    pid=31803,
    tid=31803,
    process="training process",
    thread="",
    state=ThreadState.TORCH,
    share=0.62,
    low=0.55,
    high=0.69,
    samples=12_000,
    site=replace(LOOP, source="loss.backward()"),
    calls=BACKWARD,
    on_cpu=0.883,
    gil=None,
    states=((ThreadState.TORCH, 0.62), (ThreadState.WAITING_FOR_DATA, 0.38)),
    lines=tuple(replace(line, categories={ThreadState.TORCH: 0.06}) for line in LINES),
)
HELPER = replace(DOING, pid=31999, tid=32001, process="loader worker 1", thread="pt_data_worker")


def run() -> Analysis:
    made = samples.analysis()
    return replace(
        made,
        info=replace(made.info, git_commit="d14213f08f98d09416ee1e88c7a945d961163cbf" * 2),
        lines=LINES,
        phases=PHASES,
        startup_teardown=OUTSIDE,
        input=INPUT,
        spikes=SPIKES,
        threads=(DOING, HELPER),
        step=StepDefinition(StepKind.OPTIMIZER, (("Adam (train.py:15)",),)),
    )


def comparison() -> Comparison:
    """Both sides with parts and lines in their breakdown pass; those of the second take half the time."""
    made = samples.comparison()
    return replace(made, sides=tuple(_found(side, times) for side, times in zip(made.sides, (1.0, 0.5), strict=True)))


def _found(side: Side, times: float) -> Side:
    assert side.detail is not None
    phases = tuple(replace(one, seconds_per_step=times * one.seconds_per_step) for one in PHASES)
    lines = tuple(replace(one, seconds_per_step=times * one.seconds_per_step) for one in LINES)
    detail = replace(
        side.detail,
        phases=phases,
        lines=lines,
        input=INPUT,
        step=StepDefinition(StepKind.OPTIMIZER, (("Adam (train.py:15)",),)),
    )
    return replace(side, detail=detail)
