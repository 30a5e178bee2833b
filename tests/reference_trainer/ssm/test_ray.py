"""The engine of a Ray cluster: results and failures as of a pool; dead workers and a dead node lose nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm.engine import Engine, open_engine
from reference_trainer.ssm.settings import Settings
from reference_trainer.ssm.sweep import sweep
from tests.fakes.programs import ROOT
from tests.reference_trainer import processes
from tests.reference_trainer.ssm import fake_jobs
from tests.reference_trainer.ssm.test_sweep import calls, expected, outcomes

HERE = {"num_cpus": 1, "include_dashboard": False}
"""A node."""


def test_without_ray_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(TrainerError, match=r"engine ray: Ray is not installed: pip install ray \(or the extra ray"):
        open_engine("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one core each, on this machine."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)
    from ray.cluster_utils import Cluster

    created = Cluster(initialize_head=True, head_node_args=HERE)
    try:
        yield created
    finally:
        created.shutdown()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def started(address: str, workers: int) -> Engine:
    engine = open_engine("ray", address)
    engine.start(engine.find_devices("cpu", PerformanceConfig(), workers), fake_jobs.ready)
    return engine


@pytest.mark.slow
def test_results_and_failures_are_those_of_a_pool(cluster: Any, tmp_path: Path) -> None:
    with closing(started(cluster.address, 1)) as engine:
        assert (engine.workers, engine.device_names) == (1, ())
        assert sorted(engine.run(fake_jobs.squared, range(20))) == [(task, task * task) for task in range(20)]
        result: dict[int, Any] = dict(engine.run(fake_jobs.picky, (0, 1, 4, 5)))
        assert (result[0], result[5]) == (0, 5)
        assert (result[1].reason, result[4].reason) == ("KeyError: 'one'", "Unsendable: unsendable")
        result = dict(engine.run(partial(fake_jobs.dying, tmp_path), range(5)))
        assert result.pop(2).reason == "2 workers that ran it died: killed, or out of memory"
        assert result == {task: task for task in (0, 1, 3, 4)}
        [(_, (_, name, _, threads, torch_threads))] = engine.run(fake_jobs.process, [0])
        assert name.endswith("/cpu")
        assert (threads, torch_threads) == ("1", 1)
        with pytest.raises(TrainerError, match="device cuda: no node of the cluster has a GPU"):
            engine.find_devices("cuda", PerformanceConfig(), None)


@pytest.mark.slow
def test_a_node_that_is_killed_in_mid_sweep_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(**HERE)
    how = {"device": "cpu", "fixes": ("flat-sweep",), "engine": "ray", "address": cluster.address}
    work = {"num_seeds": 20, "teacher_ranks": (1, 2), "student_dims": (8, 32)}
    settings = Settings(results=tmp_path / "results", **work, **how)
    ended: list[str] = []

    def kill() -> None:
        """Once a job is stuck on the node, which has done some."""
        while not (tmp_path / "held").exists():
            time.sleep(0.01)
        cluster.remove_node(node, allow_graceful=False)
        ended.append((tmp_path / "held").read_text().strip())

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    result = sweep(settings, work=partial(fake_jobs.held, tmp_path, node.node_id))
    killer.join(60)
    [lost] = ended
    assert lost in calls(tmp_path), "the job that it had is done again"
    assert result.failures == {}
    assert (result.done, result.jobs) == (160, 160)
    assert outcomes(settings) == expected(settings)
    assert len(result.devices) == 2, "both had worked"


@pytest.mark.slow
def test_a_cluster_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    settings = Settings(num_seeds=2, device="cpu", variant="fixed", engine="ray", workers=2, results=tmp_path / "r")
    result = sweep(settings, work=fake_jobs.work)
    assert (result.done, result.failures, result.workers) == (40, {}, 2)
    assert outcomes(settings) == expected(settings)
    import ray

    assert not ray.is_initialized()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2, 3, 4, 5, 6, 8])
def test_ctrl_c_at_any_moment_is_one_line(seconds: int) -> None:
    """Ray dies by SIGSEGV where its start is torn apart."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    command = ("-m", "reference_trainer.ssm", "--device", "cpu", "--fixes", "flat-sweep", "--engine", "ray")
    with processes.started(*command, "--workers", "2", "--num-seeds", "200", stdout=subprocess.DEVNULL) as program:
        time.sleep(seconds)
        program.send_signal(signal.SIGINT)
        _, message = program.communicate(timeout=120)
    assert program.returncode == 130, message
    assert "interrupted" in message.splitlines()[-1]
    assert "Traceback" not in message


def test_an_address_at_which_there_is_none() -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with pytest.raises(TrainerError, match=r"--address 127.0.0.1:1: no cluster could be reached: .*refused"):
        open_engine("ray", "127.0.0.1:1").find_devices("cpu", PerformanceConfig(), None)


@pytest.mark.parametrize("says", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_an_address_at_which_something_else_listens(says: bytes) -> None:
    """Ray itself would wait for minutes."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            line, _ = server.accept()
            with line:
                line.recv(100)
                line.sendall(says)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TrainerError, match="no cluster could be reached: what listens there is not Ray"):
            open_engine("ray", f"127.0.0.1:{server.getsockname()[1]}").find_devices("cpu", PerformanceConfig(), 1)
        thread.join()
