"""The reporter of Ray Train, in a loop that Ray runs in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler import marks
from tests.frameworks.examples import VALUE, Clock, run_example

TRAIN_MS, EVALUATE_MS, SAVE_MS, REPORT_MS = 10, 1_000, 5_000, 2


class Worker:
    """What Ray Train gives a worker: rank, number of workers, and a place for its reports."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.reports: list[tuple[dict[str, Any], Any]] = []
        monkeypatch.setattr(marks, "now", self.clock)
        monkeypatch.setattr("ray.train.get_context", lambda: self)
        monkeypatch.setattr("ray.train.report", self._report)

    def get_world_size(self) -> int:
        return 2

    def _report(self, metrics: dict[str, Any], checkpoint: Any = None) -> None:
        self.reports.append((metrics, checkpoint))
        self.clock.pass_ms(SAVE_MS if checkpoint else REPORT_MS)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module. Ray reads these variables when it is imported, which takes seconds."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "1")
    pytest.importorskip("ray.train", reason="Ray is not installed")
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def worker(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def test_a_report_has_the_values(torch: Any, worker: Worker) -> None:
    from profiler.frameworks.ray import Reporter

    reporter = Reporter(torch.nn.Linear(9, 1, bias=False), peak_flops=1e6)
    for checkpoint in (None, "checkpoint", None):
        for _ in range(2):
            worker.clock.pass_ms(TRAIN_MS)
            reporter.step(tokens=5)
        with reporter.phase("evaluation"):
            worker.clock.pass_ms(EVALUATE_MS)
        reporter.report({"loss": 1.0}, checkpoint=checkpoint)
    assert [checkpoint for _, checkpoint in worker.reports] == [None, "checkpoint", None]
    for (metrics, _), reported in zip(worker.reports, (0, REPORT_MS, 0), strict=True):
        tokens = 2 * 2 * 5 / (2 * TRAIN_MS + reported) * 1e3
        assert metrics["loss"] == 1.0
        assert metrics["profiler/tokens_per_second"] == pytest.approx(tokens)
        assert metrics["profiler/mfu"] == pytest.approx(tokens * 6 * 9 / 2e6)
        assert metrics["profiler/ms_evaluation"] == pytest.approx(EVALUATE_MS / 2)
    assert worker.reports[2][0]["profiler/ms_checkpoint"] == pytest.approx(SAVE_MS / 2)


def test_the_example(torch: Any, worker: Worker) -> None:
    def train(batch: Any) -> float:
        worker.clock.pass_ms(TRAIN_MS)
        return 1.0

    run_example("Ray Train", model=torch.nn.Linear(8, 1), loader=[torch.zeros(4, 8)] * 3, train=train)
    assert len(worker.reports) == 3
    assert worker.reports[0][0]["profiler/tokens_per_second"] == pytest.approx(2 * 32 / TRAIN_MS * 1e3)
    assert "profiler/mfu" not in worker.reports[0][0]


@pytest.mark.slow
def test_a_loop_of_ray_train(torch: Any, tmp_path: Path) -> None:
    """Ray's local mode (no workers) runs the loop in this process."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from profiler.frameworks.ray import Reporter

    def loop(_: Any) -> None:
        reporter = Reporter(torch.nn.Linear(8, 1), peak_flops=1e6)
        for _ in range(3):
            reporter.step(tokens=8)
            reporter.report({"loss": 1.0})

    trainer = TorchTrainer(
        loop,
        train_loop_config={},
        scaling_config=ScalingConfig(num_workers=0),
        run_config=RunConfig(storage_path=str(tmp_path)),
    )
    metrics = trainer.fit().metrics
    assert metrics["loss"] == 1.0
    assert {name for name in metrics if name.startswith(VALUE)} >= {"profiler/tokens_per_second", "profiler/mfu"}
