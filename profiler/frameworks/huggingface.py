"""A callback for the Trainer of Hugging Face.

from profiler.frameworks.huggingface import ProfilerCallback
trainer = Trainer(model=model, args=arguments, train_dataset=data)
ProfilerCallback.add_to(trainer)
trainer.train()
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from profiler import marks
from profiler.frameworks.meter import FLOPS, Meter, Phase, count_flops, known_peak

_HALF = ("torch.bfloat16", "torch.float16")


class ProfilerCallback(TrainerCallback):
    """Marks evaluations, checkpoints and logging, and adds throughput and phases to what the Trainer logs.

    Each event of the Trainer ends a phase, and the callback counts the time since the event before.

    :param flops_per_token: operations of the model per token of training; None: six for each parameter outside of
        embeddings, as the Trainer counts them.
    :param peak_flops: operations per second of one device; None: those of a known GPU.
    """

    def __init__(self, *, flops_per_token: float | None = None, peak_flops: float | None = None) -> None:
        self._stated = flops_per_token, peak_flops
        self._meter = Meter(None, None)
        self._is_training = self._is_evaluating = self._has_values = False
        self._until_log = Phase.OTHER
        """The phase in which the program is if it logs now."""
        self._logged = 0, 0.0, 0.0
        """Steps, operations and tokens that the Trainer had counted when it logged last."""
        self._flops_of_token = 0.0
        """Operations that the Trainer counts for a token; 0 where it counts something else."""

    @classmethod
    def add_to(cls, trainer: Any, **options: Any) -> ProfilerCallback:
        """Add the callback to a Trainer, as its last one; return it.

        The first place goes to a helper that adds the values before trackers get them. At the last place the time of
        trackers counts as logging.
        """
        callback = cls(**options)
        trainer.callback_handler.callbacks.insert(0, _FirstCallback(callback))
        trainer.add_callback(callback)
        return callback

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any = None, **_: Any) -> None:
        half = args.bf16 or args.fp16 or str(getattr(model, "dtype", "")) in _HALF
        flops, peak = self._stated
        self._flops_of_token = 0.0
        if getattr(model, "main_input_name", "") == "input_ids" and hasattr(model, "num_parameters"):
            self._flops_of_token = FLOPS * model.num_parameters(exclude_embeddings=True)
        if flops is None and model is not None:
            flops = self._flops_of_token or count_flops(model)
        self._meter = Meter(flops, peak or known_peak(half=half), args.world_size * max(1, args.n_gpu))
        self._logged = state.global_step, state.total_flos, state.num_input_tokens_seen
        self._is_training, self._is_evaluating, self._until_log = True, False, Phase.OTHER

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._is_training = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._passed(Phase.EVALUATION if self._is_evaluating else Phase.DATA)
        self._is_evaluating, self._until_log = False, Phase.MODEL
        marks.gauge("epoch", int(state.epoch or 0))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._passed(Phase.MODEL)
        self._until_log = Phase.OPTIMIZER

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._passed(Phase.OPTIMIZER)
        self._until_log = Phase.LOG

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._passed(Phase.OTHER)
        self._until_log = Phase.LOG

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._is_evaluating = True  # since the last event

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._passed(Phase.EVALUATION)
        self._is_evaluating = False

    on_predict = on_evaluate

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._passed(Phase.CHECKPOINT)

    def on_log(self, args: Any, state: Any, control: Any, *, logs: Any = None, **_: Any) -> None:
        self.add_values(args, state, logs)
        self._has_values = False
        if not self._is_evaluating:
            self._passed(Phase.LOG)

    def add_values(self, args: Any, state: Any, logs: Any) -> None:
        """Add throughput and phases to the training's own log, once, in the process that logs."""
        if self._has_values or self._is_evaluating:
            return
        self._passed(self._until_log)
        self._has_values = True
        if not self._is_training or not logs or "loss" not in logs:
            return
        steps, flops, seen = self._logged
        self._logged = state.global_step, state.total_flos, state.num_input_tokens_seen
        steps, tokens = state.global_step - steps, state.num_input_tokens_seen - seen
        if not tokens and self._flops_of_token:  # the Trainer counts operations of all ranks in every run
            tokens = (state.total_flos - flops) / self._flops_of_token
        batch = (state.train_batch_size or 0) * args.gradient_accumulation_steps * args.world_size
        values = self._meter.values(steps, tokens=tokens, samples=steps * batch)
        if state.is_world_process_zero:
            for log in (logs, *state.log_history[-1:]):
                log.update(values)

    def _passed(self, phase: str) -> None:
        if self._is_training:
            self._meter.passed(phase)


class _FirstCallback(TrainerCallback):
    """Adds the values of a ProfilerCallback before any other callback gets a log."""

    def __init__(self, callback: ProfilerCallback) -> None:
        self._callback = callback

    def on_log(self, args: Any, state: Any, control: Any, *, logs: Any = None, **_: Any) -> None:
        self._callback.add_values(args, state, logs)
