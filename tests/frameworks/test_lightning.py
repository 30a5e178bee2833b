"""The callback of Lightning, with the real Trainer and a tiny model."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiler import marks
from tests.frameworks.examples import VALUE, Clock, refuse, run_example

torch = pytest.importorskip("torch", reason="torch is not installed")
lightning = pytest.importorskip("lightning", reason="Lightning is not installed")

from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger  # noqa: E402
from lightning.pytorch.profilers import SimpleProfiler  # noqa: E402

from profiler.frameworks.lightning import ProfilerCallback  # noqa: E402

BATCH, BATCHES, STEPS = 4, 12, 6
DATA_MS, TRAIN_MS, EVALUATE_MS, SAVE_MS, LOG_MS = 1, 10, 1_000, 5_000, 2


class Model(lightning.LightningModule):
    """A linear model whose calls take time of the test's clock."""

    clock = Clock()

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def training_step(self, batch: Any, index: int) -> Any:
        self.clock.pass_ms(TRAIN_MS)
        loss = self.net(batch["input_ids"].float()).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.clock.pass_ms(EVALUATE_MS)
        self.log("score", self.net(batch["input_ids"].float()).mean())

    def on_save_checkpoint(self, checkpoint: Any) -> None:
        self.clock.pass_ms(SAVE_MS)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Tracker(Logger):
    """Keeps what it gets; logging takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: list[tuple[int, dict[str, float]]] = []

    name = version = "tracker"

    def log_hyperparams(self, *_: Any) -> None:
        """Keep none."""

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.logs.append((step or 0, dict(metrics)))
        Model.clock.pass_ms(LOG_MS)

    def values(self) -> list[tuple[int, dict[str, float]]]:
        return [(step, log) for step, log in self.logs if any(name.startswith(VALUE) for name in log)]

    def others(self) -> list[tuple[int, dict[str, float]]]:
        return [(step, log) for step, log in self.logs if not any(name.startswith(VALUE) for name in log)]


def collate(rows: list[Any]) -> dict[str, Any]:
    Model.clock.pass_ms(DATA_MS)
    return {"input_ids": torch.stack(rows)}


def make_loader() -> Any:
    return torch.utils.data.DataLoader(
        list(torch.arange(BATCHES * BATCH * 8).reshape(-1, 8)), BATCH, collate_fn=collate
    )


def options(folder: Path, logger: Any, **others: Any) -> dict[str, Any]:
    return {
        "max_steps": STEPS, "accumulate_grad_batches": 2, "val_check_interval": 6, "limit_val_batches": 1,
        "accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 2,
        "default_root_dir": folder, "logger": logger, **others,
    }  # fmt: skip


def make_model() -> Any:
    lightning.seed_everything(0, verbose=False)
    return Model()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    Model.clock = Clock()
    monkeypatch.setattr(marks, "now", Model.clock)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return Model.clock


def test_the_training_is_the_same_and_its_logger_gets_the_values(clock: Clock, tmp_path: Path) -> None:
    plain, tracker, models = Tracker(), Tracker(), [make_model(), make_model()]
    for model, logger in zip(models, (plain, tracker), strict=True):
        callbacks = [ModelCheckpoint(tmp_path, every_n_train_steps=3), ProfilerCallback(peak_flops=1e6)]
        given = options(tmp_path, logger, callbacks=callbacks[: 1 + (logger is tracker)])
        lightning.Trainer(**given).fit(model, make_loader(), make_loader())
    assert torch.equal(models[0].net.weight, models[1].net.weight)
    assert torch.equal(models[0].net.bias, models[1].net.bias)
    assert tracker.others() == plain.logs

    assert [step for step, _ in tracker.values()] == [1, 3, 5], "as Lightning numbers its steps"
    for (step, log), logged in zip(tracker.values(), (0, 2, 1), strict=True):
        training = (4 * (DATA_MS + TRAIN_MS) + 2 * LOG_MS * (logged > 0)) / 1e3
        assert log["profiler/ms_forward_and_backward"] == pytest.approx(4 * TRAIN_MS / 2), step
        assert log["profiler/ms_data"] == pytest.approx(4 * DATA_MS / 2), step
        tokens = 4 * BATCH * 8
        assert log["profiler/tokens_per_second"] == pytest.approx(tokens / training), step
        assert log["profiler/mfu"] == pytest.approx(tokens / training * 6 * 9 / 1e6)
    logs = dict(tracker.values())
    assert [step for step, log in logs.items() if "profiler/ms_evaluation" in log] == [3]
    assert logs[3]["profiler/ms_evaluation"] == pytest.approx((EVALUATE_MS + LOG_MS + DATA_MS) / 2)
    assert [step for step, log in logs.items() if "profiler/ms_checkpoint" in log] == [3]
    assert logs[3]["profiler/ms_checkpoint"] == pytest.approx(SAVE_MS / 2)


def test_the_example_with_a_profiler_of_the_user(clock: Clock, tmp_path: Path) -> None:
    own, logger = SimpleProfiler(), CSVLogger(str(tmp_path))
    given = options(tmp_path, logger, profiler=own, enable_checkpointing=False)
    names = run_example("Lightning", lightning=lightning, options=given, model=make_model(), loader=make_loader())
    assert names["trainer"].profiler is own, "the callback gives the profiler back"
    assert len(own.recorded_durations["run_training_batch"]) == 2 * STEPS
    assert not own.current_actions
    assert "profiler/tokens_per_second" in (Path(logger.log_dir) / "metrics.csv").read_text()


def test_the_profiler_of_the_user_is_back_after_an_exception(clock: Clock, tmp_path: Path) -> None:
    class Failing(Model):
        def training_step(self, batch: Any, index: int) -> Any:
            raise ValueError("no loss")

    own = SimpleProfiler()
    trainer = lightning.Trainer(
        **options(tmp_path, False, profiler=own, callbacks=[ProfilerCallback()], enable_checkpointing=False)
    )
    with pytest.raises(ValueError, match="no loss"):
        trainer.fit(Failing(), make_loader())
    assert trainer.profiler is own


def test_other_ranks_do_not_log() -> None:
    for is_first in (False, True):
        tracker, callback = Tracker(), ProfilerCallback(tokens=lambda batch: 7)
        trainer = SimpleNamespace(
            global_step=0, log_every_n_steps=1, world_size=2, is_global_zero=is_first, loggers=[tracker]
        )
        callback.on_train_start(trainer, None)
        trainer.global_step = 1
        callback.on_train_batch_end(trainer, None, None, None, 0)
        assert len(tracker.logs) == is_first


def test_a_recording_has_the_marks(recorded: Callable[[], Any], tmp_path: Path) -> None:
    callbacks = [ModelCheckpoint(tmp_path, every_n_train_steps=3), ProfilerCallback()]
    trainer = lightning.Trainer(**options(tmp_path, Tracker(), callbacks=callbacks, num_sanity_val_steps=0))
    trainer.fit(make_model(), make_loader(), make_loader())
    recorder = marks.recorder()
    assert recorder is not None
    assert recorder.gauges["epoch"] == 0
    run = recorded()
    regions = Counter(run.names[number] for number in run.regions["name"])
    assert regions["checkpoint"] == STEPS // 3
    assert regions["evaluation"] == 2 * STEPS // 6
    assert regions["log"] >= 2 * STEPS, "after each batch"


@pytest.mark.parametrize("tool", ["tensorboard", "wandb"])
def test_a_logger_has_the_values(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(tool, reason=f"{tool} is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = TensorBoardLogger(tmp_path) if tool == "tensorboard" else WandbLogger(save_dir=tmp_path, offline=True)
    given = options(tmp_path, logger, callbacks=[ProfilerCallback(peak_flops=1e6)], enable_checkpointing=False)
    lightning.Trainer(**given).fit(make_model(), make_loader(), make_loader())
    if isinstance(logger, WandbLogger):
        assert logger.experiment.summary["profiler/mfu"] > 0
        logger.experiment.finish()
    else:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        board = EventAccumulator(logger.log_dir)
        board.Reload()
        assert [event.step for event in board.Scalars("profiler/mfu")] == [1, 3, 5]
