"""Actors of a Ray cluster that cannot start, start wrong or die, on a stand-in for Ray; the real one: `test_ray`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm.engine import Engine, Prepare, open_engine
from reference_trainer.ssm.placement import MemoryUse, WorkerSlot
from tests.reference_trainer.processes import raising
from tests.reference_trainer.ssm import fake_jobs
from tests.reference_trainer.ssm.fake_ray import FakeRay, Killed

GB = 1 << 30
Opened = Callable[..., tuple[Engine, FakeRay]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """An engine on a cluster that is made up; what an actor sets in this process is put back."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))

    def made(**cluster: int) -> tuple[Engine, FakeRay]:
        ray = FakeRay(**cluster)
        monkeypatch.setitem(sys.modules, "ray", ray)
        return open_engine("ray"), ray

    return made


def start(engine: Engine, prepare: Prepare, device: str = "cpu", workers: int | None = 1) -> None:
    engine.start(engine.find_devices(device, PerformanceConfig(), workers), prepare)


def killing(folder: Path, task: int, slot: WorkerSlot) -> int:
    """Task 1 takes the first actor that has it along, task 2 each."""
    times = fake_jobs.note(folder, str(task), "")
    if task == 2 or (task == 1 and times == 1):
        raise Killed
    return task


def test_ctrl_c_waits_until_the_cluster_is_joined(opened: Opened) -> None:
    usual = signal.getsignal(signal.SIGTERM)
    engine, ray = opened(actors=2)
    ray.meanwhile = [signal.SIGINT]
    with pytest.raises(KeyboardInterrupt):
        engine.find_devices("cpu", PerformanceConfig(), 1)
    assert ray.joined
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is usual
    engine.close()
    assert not ray.joined, "and is left"


def test_a_second_ctrl_c_does_not_wait(opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    engine, ray = opened(actors=2)
    ray.meanwhile = [signal.SIGINT, signal.SIGINT]
    with pytest.raises(KeyboardInterrupt):
        engine.find_devices("cpu", PerformanceConfig(), 1)
    assert not ray.joined
    assert capsys.readouterr().err == "waiting until Ray has started; once more, and it ends at once\n"
    engine.close()


def test_whatever_ray_raises_is_one_line(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, ray = opened(actors=2)
    monkeypatch.setattr(ray, "init", raising(Exception("The current node timed out during startup.\nSee its logs.")))
    message = r"^engine ray: no cluster could be reached: The current node timed out during startup\. See its logs\.$"
    with pytest.raises(TrainerError, match=message):
        engine.find_devices("cpu", PerformanceConfig(), 1)
    engine.close()


def test_a_cluster_that_lost_all_its_room_ends_the_tasks(opened: Opened, tmp_path: Path) -> None:
    engine, ray = opened(actors=1)
    start(engine, fake_jobs.ready)
    tasks = engine.run(partial(killing, tmp_path), (0, 1, 3))
    assert next(tasks) == (0, 0)
    ray.lose_room()
    message = "no worker could be started: no node of the cluster had room for a new one within 120 s"
    assert {result.reason for _, result in tasks} == {message}


@pytest.mark.parametrize(
    ("device", "gpus", "workers", "what"),
    [("cpu", 0, 2, "a core"), ("cuda", 1, 2, "a core and a share of a GPU"), ("cuda", 1, None, "a core and a share")],
)
def test_a_cluster_without_room_is_one_line(
    opened: Opened, device: str, gpus: int, workers: int | None, what: str
) -> None:
    engine, ray = opened(actors=0, gpus=gpus)
    with pytest.raises(TrainerError, match=f"engine ray: no node of the cluster had {what}.* free .* within 120 s: "):
        start(engine, fake_jobs.ready, device, workers)
    engine.close()
    assert ray.killed == len(ray.asked), "nobody waits for a place any more"


def test_with_room_for_some_it_begins(opened: Opened) -> None:
    engine, _ = opened(actors=1)
    start(engine, fake_jobs.ready, workers=2)
    assert dict(engine.run(fake_jobs.squared, range(3))) == {0: 0, 1: 1, 2: 4}


def test_what_a_dead_actor_had_is_done_again_and_counted(opened: Opened, tmp_path: Path) -> None:
    engine, _ = opened(actors=1)
    start(engine, fake_jobs.ready)
    actual = dict(engine.run(partial(killing, tmp_path), range(4)))
    assert actual.pop(2).died
    assert actual == {0: 0, 1: 1, 3: 3}
    assert engine.redone == 2


def test_a_new_actor_whose_first_work_fails_gets_no_task(opened: Opened, tmp_path: Path) -> None:
    engine, _ = opened(actors=1)
    start(engine, partial(fake_jobs.unlucky_later, tmp_path, (2, 3)))
    actual = dict(engine.run(partial(fake_jobs.prepared_only, tmp_path, partial(killing, tmp_path)), (0, 1, 3)))
    assert actual == {0: 0, 1: 1, 3: 3}, "the third start in a row is right"


def test_actors_whose_first_work_fails_leave_their_tasks_as_failures(opened: Opened, tmp_path: Path) -> None:
    engine, ray = opened(actors=1)
    start(engine, partial(fake_jobs.unlucky_later, tmp_path, range(2, 100)))
    actual = dict(engine.run(partial(killing, tmp_path), (0, 1, 3)))
    assert actual[0] == 0
    message = "no worker could be started: the workers cannot be used: RuntimeError: "
    assert {actual[task].reason for task in (1, 3)} == {f"{message}no kernel"}
    assert ray.killed == len(ray.asked) == 4


@pytest.mark.parametrize(
    ("cores", "used", "workers", "sharing"), [(8, 20 * GB, None, 3), (2, GB, None, 2), (4, GB, 4, 4), (4, GB, 1, 1)]
)
def test_actors_that_share_a_gpu_know_how_many_they_are(
    opened: Opened, cores: int, used: int, workers: int | None, sharing: int
) -> None:
    engine, ray = opened(actors=8, gpus=1, cores=cores)
    start(engine, lambda *_: MemoryUse(used, 80 * GB), "cuda", workers)
    assert engine.workers == sharing
    assert ray.asked[-1]["num_gpus"] == pytest.approx(1 / sharing, abs=1e-4)
    assert {slot.sharing for _, slot in engine.run(lambda _, slot: slot, range(5))} == {sharing}
