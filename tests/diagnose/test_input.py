"""What the figures of the input suggest: workers, none, more of them, more cores, or that they stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.input import InputPart, LoaderUse
from profiler.analyse.model.measures import Measure
from profiler.diagnose.input import diagnose_input
from profiler.diagnose.model import InputAdvice
from profiler.run.model import RunInfo


def worker(name: str, share: float, seconds: float = 0.0) -> InputPart:
    return InputPart(name, "worker", seconds or share / 100, share)


def main_process(name: str, share: float, seconds: float = 0.01) -> InputPart:
    return InputPart(name, "main process", seconds, share)


def advice(
    *parts: InputPart, use: LoaderUse | None = None, step: float = 1.0, measured: float = 0.0, core: float = 0.0
) -> InputAdvice:
    """:param measured: seconds of a step that are input without waits for a core; 0: not known.
    :param core: seconds of a step that wait for a core.
    """
    info = RunInfo(2, "r", "", ("t.py",), host={"cores": 2})
    measures = {"step_time": Measure("step_time", step, "s")}
    breakdown = {"input": Measure("input", measured, "s")} if measured else {}
    breakdown |= {"core": Measure("core", core, "s")} if core else {}
    analysis = Analysis(info, measures, breakdown, {}, input=parts, loader=use or LoaderUse(1.0, 0.0, 2))
    diagnosis = diagnose_input(analysis)
    assert diagnosis is not None
    return diagnosis.advice


WAITS, BUSY = main_process("waiting for the workers", 0.6), worker("dataset", 0.95)
IDLE, RECEIVES = worker("waiting for an index", 0.6), main_process("receive", 0.3)


def test_without_input_there_is_no_diagnosis() -> None:
    assert diagnose_input(Analysis(RunInfo(2, "r", "", ("t.py",)), {}, {}, {})) is None


@pytest.mark.parametrize(
    ("cpu", "core_wait", "expected"),
    [
        (0.05, 0.02, InputAdvice.MORE_WORKERS),
        (0.3, 0.6, InputAdvice.MORE_CORES),
        (0.9, 0.05, InputAdvice.WORKERS_LIMIT),
        (0.05, None, InputAdvice.WORKERS_LIMIT),  # it may wait for a core
        (None, None, InputAdvice.WORKERS_LIMIT),
    ],
)
def test_busy_workers_run_or_wait_for_a_core_or_for_something_else(
    cpu: float | None, core_wait: float | None, expected: InputAdvice
) -> None:
    use = LoaderUse(1.0, 0.0, 2, cpu, core_wait)
    assert advice(WAITS, BUSY, worker("waiting for an index", 0.05), use=use) is expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([worker("waiting for an index", 0.9), main_process("receive", 0.02)], InputAdvice.NONE),
        ([IDLE, WAITS], InputAdvice.LATE),
        # a loader that starts rarely: nothing comes late
        ([IDLE, main_process("loader start", 0.1)], InputAdvice.NONE),
        ([main_process("loader start", 0.1), main_process("dataset", 0.02)], InputAdvice.NONE),
        ([IDLE, worker("dataset", 3.0), RECEIVES], InputAdvice.LARGER_BATCHES),
        # a worker that is busy cannot hand its tensors over: 1 ms of that is no wait for it
        ([BUSY, worker("send", 0.04), main_process("receive", 0.6)], InputAdvice.WORKERS_LIMIT),
        ([BUSY, worker("send", 0.04), main_process("receive", 0.04)], InputAdvice.NONE),
        # nor is receiving what takes as long to send
        ([worker("dataset", 0.84, 1.4), worker("send", 0.16, 0.3), RECEIVES], InputAdvice.LARGER_BATCHES),
        ([worker("dataset", 0.64, 1.4), worker("send", 0.36, 0.02), RECEIVES], InputAdvice.LARGER_BATCHES),
        # 1 ms of work in a worker, for which the training process spends 10 ms
        ([IDLE, worker("dataset", 0.1), RECEIVES], InputAdvice.NO_WORKERS),
        ([main_process("dataset", 0.4, 0.004)], InputAdvice.USE_WORKERS),
        ([main_process("dataset", 0.4, 0.0004)], InputAdvice.CHEAP_BATCHES),
        ([main_process("dataset", 0.02)], InputAdvice.NONE),
    ],
)
def test_the_figures_decide(parts: list[InputPart], expected: InputAdvice) -> None:
    assert advice(*parts) is expected


def test_a_busy_machine_does_not_hide_the_input() -> None:
    """30% of what the program does itself is input: of 1 s, 0.8 s are waits for a core."""
    makes = main_process("dataset", 0.3, 0.3)
    assert advice(makes, measured=0.06, core=0.8) is InputAdvice.USE_WORKERS
    assert advice(makes, measured=0.045, core=0.8) is InputAdvice.USE_WORKERS
    assert advice(makes, measured=0.008, core=0.8) is InputAdvice.NONE


def test_batches_are_not_late_where_one_worker_has_no_time_left() -> None:
    """A loader hands its batches out in turn, so the others wait for it."""
    use = LoaderUse(1.0, 0.0, 2, 0.2, 0.0)
    assert advice(IDLE, WAITS, use=replace(use, busiest_worker=0.75)) is InputAdvice.LATE
    assert advice(IDLE, WAITS, use=replace(use, busiest_worker=0.95)) is InputAdvice.UNEVEN
    nearly_busy = worker("waiting for an index", 0.21), WAITS
    assert advice(*nearly_busy, use=replace(use, busiest_worker=0.81)) is InputAdvice.LATE, "as busy as the others"


def test_workers_that_are_started_again_and_again_should_stay() -> None:
    parts = IDLE, worker("dataset", 0.1), RECEIVES, main_process("loader start", 0.4)
    assert advice(*parts, use=LoaderUse(1.0, 0.1, 2)) is InputAdvice.PERSISTENT_WORKERS
    # the waits for the first batches are theirs, the others are not
    parts = IDLE, worker("dataset", 0.1), RECEIVES, WAITS, main_process("loader start", 0.1)
    assert advice(*parts, use=LoaderUse(1.0, 0.1, 2, around_starts=0.5)) is InputAdvice.PERSISTENT_WORKERS
    assert advice(*parts, use=LoaderUse(1.0, 0.1, 2, around_starts=0.1)) is InputAdvice.NO_WORKERS
    # of the time that other changes could save, it is the largest part
    parts = IDLE, main_process("receive", 0.1), main_process("waiting for the workers", 0.3)
    assert advice(*parts, use=LoaderUse(1.0, 0.1, 2, around_starts=0.16)) is InputAdvice.PERSISTENT_WORKERS
    assert advice(*parts, use=LoaderUse(1.0, 0.1, 2, around_starts=0.14)) is InputAdvice.LATE


def test_workers_are_needless_if_receiving_a_batch_takes_longer_than_making_it_and_not_if_waiting_does() -> None:
    receives = main_process("receive", 0.1)
    assert advice(IDLE, worker("dataset", 0.9), WAITS, receives) is InputAdvice.NO_WORKERS
    assert advice(IDLE, worker("dataset", 1.1), WAITS, receives) is InputAdvice.LATE


def test_workers_that_wait_for_a_core_when_they_are_woken_make_batches_all_the_same() -> None:
    parts = worker("waiting for an index", 0.94), worker("collate", 0.04), RECEIVES
    assert advice(*parts, use=LoaderUse(1.0, 0.0, 2, 0.12, 0.07)) is InputAdvice.NO_WORKERS


def test_waits_for_a_core_are_taken_out_of_receiving_first() -> None:
    """Waiting for workers needs no core: of 0.7 s that the loader took, 0.05 s were without one."""
    parts = IDLE, worker("dataset", 0.9), main_process("waiting for the workers", 0.6, 0.06)
    receives = main_process("receive", 0.1, 0.01)
    assert advice(*parts, receives, step=0.1, measured=0.07) is InputAdvice.NO_WORKERS
    assert advice(*parts, receives, step=0.1, measured=0.065) is InputAdvice.LATE


def test_cheap_batches_count_each_though_a_step_takes_several() -> None:
    part = main_process("dataset", 0.4, 0.004)
    assert advice(part, use=LoaderUse(8.0, 0.0)) is InputAdvice.CHEAP_BATCHES
