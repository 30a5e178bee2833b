"""The engines on one machine and on a stand-in for Ray: results, failures, workers that die; nothing is lost or left.

`test_ray.py` tests the engine of a cluster with Ray itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm.engine import ONE_THREAD, Engine, Failure, Prepare, open_engine
from reference_trainer.ssm.engines.ray import Cluster, _share
from reference_trainer.ssm.placement import MemoryUse
from tests.reference_trainer.processes import raising
from tests.reference_trainer.ssm import fake_jobs
from tests.reference_trainer.ssm.fake_ray import FakeRay

GB = 1 << 30
Install = Callable[..., FakeRay]
every_engine = pytest.mark.parametrize("name", ["inline", "pool", "ray"])
with_workers = pytest.mark.parametrize("name", ["pool", "ray"])


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a stand-in for Ray; the environment that its actors set in this process is restored."""
    for name in ONE_THREAD:
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    monkeypatch.setattr(Cluster, "patience_s", 0.0)

    def installed(**cluster: int) -> FakeRay:
        ray = FakeRay(**{"actors": 2, **cluster})
        monkeypatch.setitem(sys.modules, "ray", ray)
        return ray

    return installed


@pytest.fixture(autouse=True)
def _ray(request: pytest.FixtureRequest) -> None:
    """Replace Ray in tests of several engines."""
    if "name" in request.fixturenames and request.getfixturevalue("name") == "ray":
        request.getfixturevalue("install")()


@contextmanager
def started(
    name: str = "pool", prepare: Prepare = fake_jobs.ready, workers: int | None = 2, device: str = "cpu"
) -> Iterator[Engine]:
    with closing(open_engine(name)) as engine:
        workers = None if name == "inline" else workers
        engine.start(engine.find_devices(device, PerformanceConfig(), workers), prepare)
        yield engine


def results(engine: Engine, work: Callable[..., Any], tasks: Any) -> dict[int, Any]:
    return dict(engine.run(work, tasks))


def test_engines_are_found_by_name() -> None:
    with pytest.raises(TrainerError, match="unknown engine 'nope': choose one of inline, pool, ray"):
        open_engine("nope")
    for name in ("inline", "pool"):
        with pytest.raises(TrainerError, match=f"engine {name} has no --address: leave it out"):
            open_engine(name, "head-node:6379")


@every_engine
def test_every_task_has_its_result(name: str) -> None:
    with started(name) as engine:
        assert engine.workers == (1 if name == "inline" else 2)
        assert engine.device_names == ("cpu",) * {"inline": 1, "pool": 2, "ray": 0}[name]
        assert results(engine, fake_jobs.squared, range(50)) == {task: task * task for task in range(50)}
        assert results(engine, fake_jobs.squared, ()) == {}
        assert results(engine, fake_jobs.nothing, [1, 2]) == {1: None, 2: None}
        assert engine.redone == ()


@every_engine
def test_an_exception_is_the_result_of_its_task(name: str) -> None:
    tasks = range(6) if name == "pool" else (0, 1, 4, 5)  # 2 need not be pickled here, and 3 would end this process
    with started(name) as engine:
        actual = results(engine, fake_jobs.picky, tasks)
    assert (actual[0], actual[5]) == (0, 5)
    assert actual[1].reason == "KeyError: 'one'"
    assert "in picky" in actual[1].trace
    assert not actual[1].died
    assert actual[4].reason == "Unsendable: unsendable"
    if name == "pool":
        assert "pickle" in actual[2].reason.lower()
        assert actual[3].reason == "SystemExit: 3"


def test_a_failure_is_one_line() -> None:
    assert Failure.of(ValueError("two\n  lines")).reason == "ValueError: two lines"
    assert Failure.of(ValueError()).reason == "ValueError"
    refused = Failure.of(TrainerError("--log x: no"))
    assert (refused.reason, refused.refused) == ("--log x: no", True)


# ---------------------------------------------------------------- workers that die


@with_workers
def test_tasks_of_dead_workers_are_repeated_and_a_task_that_kills_fails(name: str, tmp_path: Path) -> None:
    with started(name) as engine:
        actual = results(engine, partial(fake_jobs.dying, tmp_path), range(12))
    bad = actual.pop(2)
    assert bad.died
    assert bad.reason == "2 workers that ran it died: killed, or out of memory"
    assert actual == {task: task for task in range(12) if task != 2}
    times = {path.name: len(path.read_text().splitlines()) for path in tmp_path.iterdir()}
    assert times == {str(task): 2 if task in (1, 2) else 1 for task in range(12)}, "no other task is repeated"
    assert len(engine.redone) == 2


@with_workers
def test_a_replacement_gets_no_task_before_its_first_work_succeeds(name: str, tmp_path: Path) -> None:
    with started(name, partial(fake_jobs.unlucky_later, tmp_path, when=(2, 3)), workers=1) as engine:
        work = partial(fake_jobs.prepared_only, tmp_path, partial(fake_jobs.dying, tmp_path))
        assert results(engine, work, (0, 1, 3)) == {0: 0, 1: 1, 3: 3}, "the third start in a row succeeds"
        assert len(engine.redone) == 1, "a task that no worker had begun is not repeated"


@with_workers
@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (partial(fake_jobs.unlucky_later, when=range(2, 100)), "RuntimeError: no kernel"),
        (fake_jobs.dead_later, "each died before it received a task"),
    ],
    ids=["fails", "dies"],
)
def test_tasks_fail_without_replacements(name: str, prepare: partial[MemoryUse], why: str, tmp_path: Path) -> None:
    with started(name, partial(prepare, tmp_path), workers=1) as engine:
        actual = results(engine, partial(fake_jobs.dying, tmp_path), (0, 1, 3))
    assert actual[0] == 0
    assert {actual[task].reason for task in (1, 3)} == {f"no worker could be started: {why}"}
    assert (tmp_path / "starts").read_text().count("\n") == 4, "three replacements are tried"


@with_workers
def test_a_later_pass_tries_a_worker_that_was_given_up_once_more(name: str, tmp_path: Path) -> None:
    with started(name, partial(fake_jobs.unlucky_later, tmp_path, when=range(2, 6)), workers=1) as engine:
        work = partial(fake_jobs.dying, tmp_path)
        for starts in (4, 5):
            assert all(result.died for result in results(engine, work, (1,)).values())
            assert (tmp_path / "starts").read_text().count("\n") == starts
        assert results(engine, work, (1, 3)) == {1: 1, 3: 3}


@with_workers
@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (fake_jobs.dead, "a worker{} died while it started: killed, or out of memory; try fewer --workers"),
        (fake_jobs.unlucky, "the workers cannot be used: RuntimeError: no kernel"),
    ],
)
def test_workers_that_cannot_be_started(name: str, prepare: Prepare, message: str) -> None:
    with pytest.raises(TrainerError) as caught, started(name, prepare):
        raise AssertionError
    assert str(caught.value) == message.format(" on cpu" if name == "pool" else "")


# ---------------------------------------------------------------- the pool


def test_workers_are_single_threaded_processes_that_run_at_the_same_time(tmp_path: Path) -> None:
    with started() as engine:
        assert results(engine, partial(fake_jobs.meeting, tmp_path), range(8)) == dict.fromkeys(range(8), True)
        actual = results(engine, fake_jobs.process, range(20)).values()
    assert {item[1:] for item in actual} == {("cpu", 2, "1", 1)}, "the first one, too, shares the device"
    processes = {item[0] for item in actual}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert all(map(fake_jobs.gone, processes))
    assert os.environ.get("NUMBA_NUM_THREADS") is None


def test_idle_workers_that_were_killed_are_replaced(tmp_path: Path) -> None:
    with started() as engine:
        before = {result[0] for result in results(engine, fake_jobs.process, range(20)).values()}
        for process in before:
            os.kill(process, signal.SIGKILL)
            assert fake_jobs.gone(process)
        assert all(results(engine, partial(fake_jobs.meeting, tmp_path), range(8)).values())
    after = set(map(int, (tmp_path / "meeting").read_text().split()))
    assert len(after) == 2
    assert not before & after


def test_a_pool_that_is_closed_in_the_middle_leaves_no_process() -> None:
    with started() as engine:
        tasks = engine.run(fake_jobs.process, range(1000))
        processes = {next(tasks)[1][0] for _ in range(20)}
    assert processes
    assert all(map(fake_jobs.gone, processes))


def test_a_machine_without_room_for_a_worker_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.context.BaseContext.Pipe", raising(OSError(24, "Too many open files")))
    message = r"a worker could not be started: .*Too many open files; fewer --workers"
    with pytest.raises(TrainerError, match=message), started():
        raise AssertionError


def test_inline_refuses_workers() -> None:
    engine = open_engine("inline")
    with pytest.raises(TrainerError, match=r"--workers 4 means nothing with engine inline, .*: choose --engine pool"):
        engine.find_devices("cpu", PerformanceConfig(), 4)
    assert engine.find_devices("cpu", PerformanceConfig(), 1).kind == "cpu"


# ---------------------------------------------------------------- a cluster


def test_ctrl_c_waits_until_the_cluster_is_joined(install: Install) -> None:
    usual = signal.getsignal(signal.SIGTERM)
    ray = install()
    ray.signals = [signal.SIGINT]
    with closing(open_engine("ray")) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.find_devices("cpu", PerformanceConfig(), 1)
        assert ray.joined
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) is usual
    assert not ray.joined


def test_a_second_ctrl_c_does_not_wait(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    ray = install()
    ray.signals = [signal.SIGINT, signal.SIGINT]
    with pytest.raises(KeyboardInterrupt), started("ray"):
        raise AssertionError
    assert not ray.joined
    assert capsys.readouterr().err == "waiting until Ray has started; once more, and it ends at once\n"


def test_an_error_of_ray_is_one_line(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install(), "init", raising(Exception("The node timed out.\nSee its logs.")))
    message = r"^engine ray: no cluster could be reached: The node timed out\. See its logs\.$"
    with pytest.raises(TrainerError, match=message), started("ray"):
        raise AssertionError


def test_tasks_fail_if_a_cluster_has_no_room_for_a_replacement(install: Install, tmp_path: Path) -> None:
    ray = install(actors=1)
    with started("ray", workers=1) as engine:
        tasks = engine.run(partial(fake_jobs.dying, tmp_path), (0, 1, 3))
        assert next(tasks) == (0, 0)
        ray.room -= 1_000
        message = "no worker could be started: no node of the cluster had room for a new one within 0 s"
        assert {result.reason for _, result in tasks if isinstance(result, Failure)} == {message}


@pytest.mark.parametrize(
    ("device", "workers", "what"),
    [("cpu", 2, "a core"), ("cuda", 2, "a core and a share of a GPU"), ("cuda", None, "a core and a share")],
)
def test_a_cluster_without_room_is_one_line(install: Install, device: str, workers: int | None, what: str) -> None:
    ray = install(actors=0, gpus=int(device == "cuda"))
    message = f"engine ray: no node of the cluster had {what}.* free for a worker within 0 s: "
    with pytest.raises(TrainerError, match=message), started("ray", workers=workers, device=device):
        raise AssertionError
    assert ray.killed == len(ray.options), "no actor waits for room any more"


def test_a_cluster_with_room_for_some_workers_is_used(install: Install) -> None:
    install(actors=1)
    with started("ray") as engine:
        assert results(engine, fake_jobs.squared, range(3)) == {0: 0, 1: 1, 2: 4}


@pytest.mark.parametrize(
    ("cores", "used", "workers", "sharing"), [(8, 20 * GB, None, 3), (2, GB, None, 2), (4, GB, 4, 4), (4, GB, 1, 1)]
)
def test_actors_know_how_many_share_their_gpu(
    install: Install, cores: int, used: int, workers: int | None, sharing: int
) -> None:
    ray = install(actors=8, gpus=1, cores=cores)
    with started("ray", lambda *_: MemoryUse(used, 80 * GB), workers, "cuda") as engine:
        assert engine.workers == sharing
        assert ray.options[-1]["num_gpus"] == pytest.approx(1 / sharing, abs=1e-4)
        assert {slot.sharing for _, slot in engine.run(lambda _, slot: slot, range(5))} == {sharing}


@pytest.mark.parametrize(("actors", "share"), [(1, 1.0), (2, 0.5), (3, 0.3333), (7, 0.1428)])
def test_shares_of_a_gpu_fit_into_it(actors: int, share: float) -> None:
    assert _share(actors) == share
    assert actors * share <= 1
