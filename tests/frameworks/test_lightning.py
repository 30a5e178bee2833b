"""The callback of Lightning, with the real Trainer and a tiny model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiler import marks
from tests.frameworks.examples import (
    BATCH,
    DATA_MS,
    EVALUATE_MS,
    LOG_MS,
    SAVE_MS,
    STEPS,
    TRAIN_MS,
    Clock,
    run_example,
)  # fmt: skip


@pytest.fixture
def tiny() -> Any:
    """The tiny model and its Trainer. The libraries are imported here, because that takes seconds."""
    for library in ("torch", "lightning"):
        pytest.importorskip(library, reason=f"{library} is not installed")
    from tests.frameworks import tiny_lightning

    return tiny_lightning


def test_the_training_is_the_same_and_its_logger_gets_the_values(tiny: Any, clock: Clock, tmp_path: Path) -> None:
    plain, tracker, models = tiny.Tracker(), tiny.Tracker(), [tiny.make_model(), tiny.make_model()]
    for model, logger in zip(models, (plain, tracker), strict=True):
        callbacks = [tiny.ModelCheckpoint(tmp_path, every_n_train_steps=3), tiny.ProfilerCallback(peak_flops=1e6)]
        given = tiny.options(tmp_path, logger, callbacks=callbacks[: 1 + (logger is tracker)])
        tiny.lightning.Trainer(**given).fit(model, tiny.make_loader(), tiny.make_loader())
    assert tiny.torch.equal(models[0].net.weight, models[1].net.weight)
    assert tiny.torch.equal(models[0].net.bias, models[1].net.bias)
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


def test_the_example_with_a_profiler_of_the_user(tiny: Any, clock: Clock, tmp_path: Path) -> None:
    own, logger = tiny.SimpleProfiler(), tiny.CSVLogger(str(tmp_path))
    given = tiny.options(tmp_path, logger, profiler=own, enable_checkpointing=False)
    names = run_example(
        "Lightning", lightning=tiny.lightning, options=given, model=tiny.make_model(), loader=tiny.make_loader()
    )
    assert names["trainer"].profiler is own, "the callback gives the profiler back"
    assert len(own.recorded_durations["run_training_batch"]) == 2 * STEPS
    assert not own.current_actions
    assert "profiler/tokens_per_second" in (Path(logger.log_dir) / "metrics.csv").read_text()


def test_the_profiler_of_the_user_is_back_after_an_exception(tiny: Any, clock: Clock, tmp_path: Path) -> None:
    class Failing(tiny.Model):
        def training_step(self, batch: Any, index: int) -> Any:
            raise ValueError("no loss")

    own = tiny.SimpleProfiler()
    trainer = tiny.lightning.Trainer(
        **tiny.options(tmp_path, False, profiler=own, callbacks=[tiny.ProfilerCallback()], enable_checkpointing=False)
    )
    with pytest.raises(ValueError, match="no loss"):
        trainer.fit(Failing(), tiny.make_loader())
    assert trainer.profiler is own


def test_other_ranks_do_not_log(tiny: Any) -> None:
    for is_first in (False, True):
        tracker, callback = tiny.Tracker(), tiny.ProfilerCallback(tokens=lambda batch: 7)
        trainer = SimpleNamespace(
            global_step=0, log_every_n_steps=1, world_size=2, is_global_zero=is_first, loggers=[tracker]
        )
        callback.on_train_start(trainer, None)
        trainer.global_step = 1
        callback.on_train_batch_end(trainer, None, None, None, 0)
        assert len(tracker.logs) == is_first


def test_a_recording_has_the_marks(tiny: Any, recorded: Callable[[], Any], tmp_path: Path) -> None:
    callbacks = [tiny.ModelCheckpoint(tmp_path, every_n_train_steps=3), tiny.ProfilerCallback()]
    trainer = tiny.lightning.Trainer(
        **tiny.options(tmp_path, tiny.Tracker(), callbacks=callbacks, num_sanity_val_steps=0)
    )
    trainer.fit(tiny.make_model(), tiny.make_loader(), tiny.make_loader())
    recorder = marks.recorder()
    assert recorder is not None
    assert recorder.gauges["epoch"] == 0
    run = recorded()
    regions = Counter(run.names[number] for number in run.regions["name"])
    assert regions["checkpoint"] == STEPS // 3
    assert regions["evaluation"] == 2 * STEPS // 6
    assert regions["log"] >= 2 * STEPS, "after each batch"


@pytest.mark.parametrize("tool", ["tensorboard", "wandb"])
def test_a_logger_has_the_values(tiny: Any, tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(tool, reason=f"{tool} is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = (
        tiny.TensorBoardLogger(tmp_path) if tool == "tensorboard" else tiny.WandbLogger(save_dir=tmp_path, offline=True)
    )
    given = tiny.options(
        tmp_path, logger, callbacks=[tiny.ProfilerCallback(peak_flops=1e6)], enable_checkpointing=False
    )
    tiny.lightning.Trainer(**given).fit(tiny.make_model(), tiny.make_loader(), tiny.make_loader())
    if isinstance(logger, tiny.WandbLogger):
        assert logger.experiment.summary["profiler/mfu"] > 0
        logger.experiment.finish()
    else:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        board = EventAccumulator(logger.log_dir)
        board.Reload()
        assert [event.step for event in board.Scalars("profiler/mfu")] == [1, 3, 5]
