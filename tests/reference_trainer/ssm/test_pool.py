"""The engines of one machine: results and failures of tasks, workers that die, and that nothing is lost or left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm.engine import Engine, Failure, Prepare, engines, open_engine
from reference_trainer.ssm.placement import Device, Placement
from tests.reference_trainer.processes import raising
from tests.reference_trainer.ssm import fake_jobs

LOCAL = ("inline", "pool")


@contextmanager
def started(name: str = "pool", prepare: Prepare = fake_jobs.ready, workers: int = 2) -> Iterator[Engine]:
    with closing(open_engine(name)) as engine:
        engine.start(Placement((Device("cpu", None, None, None),), workers=workers), prepare)
        yield engine


def test_engines_are_found_by_name() -> None:
    assert all(plugin.name == name and plugin.help for name, plugin in engines().items())
    with pytest.raises(TrainerError, match="unknown engine 'nope': choose one of inline, pool, ray"):
        open_engine("nope")
    for name in LOCAL:
        with pytest.raises(TrainerError, match="--address is of engine ray"):
            open_engine(name, "somewhere:6379")


@pytest.mark.parametrize("name", LOCAL)
def test_every_task_has_its_result(name: str) -> None:
    with started(name) as engine:
        assert engine.workers == (2 if name == "pool" else 1)
        assert engine.device_names == ("cpu",) * engine.workers
        assert sorted(engine.run(fake_jobs.squared, range(50))) == [(task, task * task) for task in range(50)]
        assert list(engine.run(fake_jobs.squared, ())) == []
        assert [*engine.run(fake_jobs.squared, [3])] == [(3, 9)], "again"


@pytest.mark.parametrize("name", LOCAL)
def test_a_task_without_a_result_is_done(name: str) -> None:
    with started(name) as engine:
        assert sorted(engine.run(fake_jobs.nothing, [1, 2])) == [(1, None), (2, None)]
        assert engine.redone == 0


def test_workers_after_the_first_know_what_it_learned(tmp_path: Path) -> None:
    with started(prepare=partial(fake_jobs.learning, tmp_path)) as engine:
        processes = {result[0] for _, result in engine.run(fake_jobs.process, range(20))}
        for process in processes:
            os.kill(process, 9)
            assert fake_jobs.gone(process)
        assert len({result[0] for _, result in engine.run(fake_jobs.process, range(20))}) == 2
    before, *others = (tmp_path / "learned").read_text().splitlines()
    assert before == "()"
    [reported] = set(others)
    assert len(others) == 3, "the second, and the two that came in the place of both"
    assert reported in {f"({process},)" for process in processes}


def test_a_machine_without_room_for_a_worker_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.context.BaseContext.Pipe", raising(OSError(24, "Too many open files")))
    message = r"a worker could not be started: .*Too many open files; fewer --workers"
    with pytest.raises(TrainerError, match=message), started():
        raise AssertionError


@pytest.mark.parametrize("name", LOCAL)
def test_what_a_task_raises_is_its_result(name: str) -> None:
    tasks = (0, 1, 4) if name == "inline" else range(6)  # the others end this process, or need not be sent
    with started(name) as engine:
        actual: dict[int, Any] = dict(engine.run(fake_jobs.picky, tasks))
    assert actual[0] == 0
    assert actual[1].reason == "KeyError: 'one'"
    assert "in picky" in actual[1].trace
    assert actual[4].reason == "Unsendable: unsendable"
    assert not actual[1].died
    if name == "pool":
        assert "pickle" in actual[2].reason.lower()
        assert actual[3].reason == "SystemExit: 3"
        assert actual[5] == 5


def test_a_failure_is_one_line() -> None:
    assert Failure.of(ValueError("two\n  lines")).reason == "ValueError: two lines"
    assert Failure.of(ValueError()).reason == "ValueError"
    refused = Failure.of(TrainerError("--log x: no"))
    assert (refused.reason, refused.refused) == ("--log x: no", True)


def test_workers_are_processes_of_one_thread_each() -> None:
    with started() as engine:
        actual = [result for _, result in engine.run(fake_jobs.process, range(20))]
    assert {actual[0][1:]} == {("cpu", "1", 1)} == {item[1:] for item in actual}
    processes = {item[0] for item in actual}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert all(map(fake_jobs.gone, processes))
    assert os.environ.get("NUMBA_NUM_THREADS") is None, "of the workers alone"


def test_what_a_dead_worker_had_is_done_again_and_a_killer_is_a_failure(tmp_path: Path) -> None:
    with started() as engine:
        actual: dict[int, Any] = dict(engine.run(partial(fake_jobs.dying, tmp_path), range(12)))
    bad = actual.pop(2)
    assert bad.died
    assert bad.reason == "2 workers that ran it died: killed, or out of memory"
    assert actual == {task: task for task in range(12) if task != 2}
    times = {path.name: len(path.read_text().split()) for path in tmp_path.iterdir()}
    assert times == {str(task): 2 if task in (1, 2) else 1 for task in range(12)}, "and nothing else twice"
    assert engine.redone == 2


def test_a_worker_that_was_killed_while_idle_is_replaced() -> None:
    with started() as engine:
        before = {result[0] for _, result in engine.run(fake_jobs.process, range(20))}
        for process in before:
            os.kill(process, 9)
            assert fake_jobs.gone(process)
        after = {result[0] for _, result in engine.run(fake_jobs.process, range(20))}
    assert len(after) == 2
    assert not before & after


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (fake_jobs.dead, "a worker on cpu died while it started: killed, or out of memory; try fewer --workers"),
        (fake_jobs.unlucky, "the workers cannot be used: RuntimeError: no kernel"),
    ],
)
def test_workers_that_cannot_be_started(prepare: Prepare, message: str) -> None:
    with pytest.raises(TrainerError) as caught, started(prepare=prepare):
        raise AssertionError
    assert str(caught.value) == message


def test_workers_that_cannot_be_replaced_leave_their_tasks_as_failures(tmp_path: Path) -> None:
    with started(prepare=partial(fake_jobs.dead_later, tmp_path), workers=1) as engine:
        actual = dict(engine.run(partial(fake_jobs.dying, tmp_path), range(4)))
    assert actual[0] == 0
    assert {actual[task].reason for task in (1, 2, 3)} == {
        "no worker could be started: each died before it received a task"
    }


def test_a_new_worker_whose_first_work_fails_gets_no_task(tmp_path: Path) -> None:
    with started(prepare=partial(fake_jobs.unlucky_later, tmp_path, (2, 3)), workers=1) as engine:
        work = partial(fake_jobs.prepared_only, tmp_path, partial(fake_jobs.dying, tmp_path))
        assert dict(engine.run(work, (0, 1, 3))) == {0: 0, 1: 1, 3: 3}, "the third start in a row is right"
        assert engine.redone == 1, "a task that none had begun is not done again"


def test_new_workers_whose_first_work_fails_leave_their_tasks_as_failures(tmp_path: Path) -> None:
    with started(prepare=partial(fake_jobs.unlucky_later, tmp_path, range(2, 100)), workers=1) as engine:
        actual = dict(engine.run(partial(fake_jobs.dying, tmp_path), range(3)))
    assert actual[0] == 0
    message = "no worker could be started: the workers cannot be used: RuntimeError: "
    assert {actual[task].reason for task in (1, 2)} == {f"{message}no kernel"}
    assert (tmp_path / "starts").read_text().count("\n") == 4, "three of them were tried"


def test_every_worker_knows_how_many_share_its_device() -> None:
    with started() as engine:
        actual = [result for _, result in engine.run(fake_jobs.sharing, range(20))]
    assert len(set(actual)) == 2
    assert {sharing for _, sharing in actual} == {2}, "also the first, which was started before the other"


def test_inline_refuses_workers() -> None:
    engine = open_engine("inline")
    with pytest.raises(TrainerError, match=r"--workers 4 means nothing with engine inline, .*: choose --engine pool"):
        engine.find_devices("cpu", PerformanceConfig(), 4)
    assert engine.find_devices("cpu", PerformanceConfig(), 1).kind == "cpu"
    assert engine.redone == 0


def test_a_pool_that_is_left_in_the_middle_leaves_no_process(tmp_path: Path) -> None:
    with started() as engine:
        results = engine.run(fake_jobs.process, range(1000))
        processes = {next(results)[1][0] for _ in range(20)}
    assert processes
    assert all(map(fake_jobs.gone, processes))


def test_two_workers_work_at_the_same_time(tmp_path: Path) -> None:
    """Each task ends when another process is in one as well: one worker alone would wait in vain."""
    with started() as engine:
        assert dict(engine.run(partial(fake_jobs.meeting, tmp_path), range(8))) == dict.fromkeys(range(8), True)
