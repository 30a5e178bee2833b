"""The callback of Hugging Face's Trainer, with the real Trainer and a tiny model."""

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
    VALUE,
    Clock,
    run_example,
)  # fmt: skip


@pytest.fixture
def tiny() -> Any:
    """The tiny Trainer. Its libraries are imported here, because that takes seconds."""
    for library in ("torch", "transformers", "accelerate"):
        pytest.importorskip(library, reason=f"{library} is not installed")
    from tests.frameworks import tiny_trainer

    return tiny_trainer


def of_training(tracker: Any) -> list[dict[str, float]]:
    return [log for log in tracker.logs if "loss" in log]


def test_the_training_is_the_same_and_its_tracker_gets_the_values(tiny: Any, clock: Clock, tmp_path: Path) -> None:
    plain, tracker = tiny.Tracker(), tiny.Tracker()
    without = tiny.make_trainer(tmp_path / "a", plain)
    without.train()
    trainer = tiny.make_trainer(tmp_path / "b", tracker)
    tiny.ProfilerCallback.add_to(trainer, peak_flops=1e9)
    trainer.train()
    for name, weights in without.model.state_dict().items():
        assert tiny.torch.equal(weights, trainer.model.state_dict()[name]), name
    kept = [{name: value for name, value in log.items() if not name.startswith(VALUE)} for log in tracker.logs]
    times = {"train_runtime", "eval_runtime"}
    assert [log.keys() for log in kept] == [log.keys() for log in plain.logs]
    assert [log.get("loss") for log in kept] == [log.get("loss") for log in plain.logs]
    assert times & set().union(*kept)

    logs = of_training(tracker)
    assert [log["step"] for log in logs] == [1, 2, 3, 4, 5, 6]
    for log, batches, loaded in zip(logs, (2, 2, 1) * 2, (3, 2, 0) * 2, strict=True):  # accelerate loads one ahead
        training = (batches * TRAIN_MS + loaded * DATA_MS + LOG_MS * (log["step"] > 1)) / 1e3
        assert log["profiler/tokens_per_second"] == pytest.approx(batches * BATCH * tiny.LENGTH / training)
        assert log["profiler/ms_forward_and_backward"] == pytest.approx(batches * TRAIN_MS)
        assert log["profiler/ms_data"] == pytest.approx(loaded * DATA_MS)
        flops = 6 * trainer.model.num_parameters(exclude_embeddings=True)
        assert log["profiler/mfu"] == pytest.approx(log["profiler/tokens_per_second"] * flops / 1e9)
    evaluated = {log["step"]: log.get("profiler/ms_evaluation") for log in logs}
    assert evaluated[3] == pytest.approx(EVALUATE_MS + LOG_MS + DATA_MS), "its step ended when the evaluation began"
    assert [step for step, ms in evaluated.items() if ms] == [3, 5]
    assert [log["step"] for log in logs if log.get("profiler/ms_checkpoint", 0) >= SAVE_MS] == [4]
    history = [log for log in trainer.state.log_history if "loss" in log]
    assert [log["profiler/mfu"] for log in history] == [log["profiler/mfu"] for log in logs]


def test_the_example_and_a_log_of_several_steps(tiny: Any, clock: Clock, tmp_path: Path) -> None:
    tracker = tiny.Tracker()
    made = tiny.make_trainer(tmp_path, tracker, logging_steps=3, eval_strategy="no", save_strategy="no")
    names = {"Trainer": lambda **_: made, "model": None, "arguments": None, "data": None}
    run_example("Hugging Face", **names)
    tokens = 5 * BATCH * tiny.LENGTH
    for log, logged in zip(of_training(tracker), (0, LOG_MS), strict=True):
        training = (5 * (DATA_MS + TRAIN_MS) + logged) / 1e3
        assert log["profiler/tokens_per_second"] == pytest.approx(tokens / training)
        assert log["profiler/ms_forward_and_backward"] == pytest.approx(5 * TRAIN_MS / 3), "by step of the optimizer"
        assert "profiler/mfu" not in log, "the peak of this device is not known"


def test_other_ranks_do_not_log(tiny: Any) -> None:
    arguments = SimpleNamespace(bf16=False, fp16=False, world_size=2, n_gpu=0, gradient_accumulation_steps=1)
    state = SimpleNamespace(
        global_step=0, total_flos=0.0, num_input_tokens_seen=0, train_batch_size=4, epoch=0.0, log_history=[{}],
        is_world_process_zero=False,
    )  # fmt: skip
    for is_first in (False, True):
        state.is_world_process_zero, state.global_step, callback = is_first, 0, tiny.ProfilerCallback()
        logs = {"loss": 1.0}
        callback.on_train_begin(arguments, state, None)
        callback.on_step_begin(arguments, state, None)
        callback.on_step_end(arguments, state, None)
        state.global_step = 1
        callback.on_log(arguments, state, None, logs=logs)
        assert ("profiler/samples_per_second" in logs) == is_first
        assert ("profiler/samples_per_second" in state.log_history[-1]) == is_first


def test_a_recording_has_the_marks(tiny: Any, recorded: Callable[[], Any], tmp_path: Path) -> None:
    trainer = tiny.make_trainer(tmp_path / "a", tiny.Tracker())
    tiny.ProfilerCallback.add_to(trainer)
    trainer.train()
    recorder = marks.recorder()
    assert recorder is not None
    assert recorder.gauges["epoch"] == 1
    run = recorded()
    regions = Counter(run.names[number] for number in run.regions["name"])
    assert regions["checkpoint"] == STEPS // 3
    assert regions["evaluation"] == STEPS // 2
    assert regions["log"] == 2 * (STEPS + 1), (
        "before the trackers and within them; the last log is of the whole training"
    )


@pytest.mark.parametrize("tool", ["tensorboard", "wandb"])
def test_a_tracker_of_the_trainer_has_the_values(
    tiny: Any, tool: str, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(tool, reason=f"{tool} is not installed")
    monkeypatch.undo()  # W&B's own process is reached by a socket
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_DIR", str(tmp_path)), ("WANDB_SILENT", "true")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    trainer = tiny.make_trainer(tmp_path, tiny.Tracker(), report_to=[tool])
    tiny.ProfilerCallback.add_to(trainer, peak_flops=1e9)
    trainer.train()
    logged = [log["profiler/mfu"] for log in trainer.state.log_history if "loss" in log]
    if tool == "wandb":
        import wandb

        assert wandb.run is not None
        assert wandb.run.summary["train/profiler/mfu"] == pytest.approx(logged[-1])
        wandb.finish()
    else:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        board = EventAccumulator(str(tmp_path / "board"))
        board.Reload()
        assert [event.value for event in board.Scalars("train/profiler/mfu")] == pytest.approx(logged, rel=1e-5)
