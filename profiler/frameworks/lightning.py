"""A callback for Lightning.

from profiler.frameworks.lightning import ProfilerCallback
trainer = lightning.Trainer(callbacks=[ProfilerCallback()])
trainer.fit(model, loader)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

try:
    from lightning.pytorch import Callback
    from lightning.pytorch.profilers import Profiler
except ModuleNotFoundError:  # the same under its older name
    from pytorch_lightning import Callback
    from pytorch_lightning.profilers import Profiler

from profiler import marks
from profiler.frameworks.meter import Meter, Phase, count_batch, count_flops, known_peak

_PHASES: Final = (
    ("save_checkpoint", Phase.CHECKPOINT),
    ("[_EvaluationLoop]", Phase.EVALUATION),
    ("train_dataloader_next", Phase.DATA),
    (".training_step", Phase.MODEL),
    (".backward", Phase.MODEL),
    ("optimizer_step", Phase.OPTIMIZER),
)
"""Parts of the names of Lightning's actions, and what they are. Of nested actions the innermost counts: an optimizer's
step contains forward and backward."""
_HOOKS: Final = (
    ("[LightningModule]", "on_train_batch_end"),
    ("[LightningModule]", "on_validation_model_eval"),
    ("[LightningModule]", "on_validation_start"),
    ("[Strategy]", "on_validation_end"),
)
"""Owners and names of hooks after which another phase begins."""


class ProfilerCallback(Callback):
    """Marks evaluations, checkpoints and logging, and logs throughput and phases with the Trainer's loggers.

    While the Trainer fits, it gets the actions that Lightning tells the Trainer's profiler, and passes them on to that.

    :param tokens: counts the tokens of a batch; None: the elements of its `input_ids`, if it has any.
    :param flops_per_token: operations of the model per token of training; None: six for each parameter outside of
        embeddings.
    :param peak_flops: operations per second of one device; None: those of a known GPU.
    """

    def __init__(
        self,
        *,
        tokens: Callable[[Any], int] | None = None,
        flops_per_token: float | None = None,
        peak_flops: float | None = None,
    ) -> None:
        super().__init__()
        self._count_tokens = tokens
        self._stated = flops_per_token, peak_flops
        self._meter = Meter(None, None)
        self._actions: _Actions | None = None
        self._logged = self._tokens = self._samples = 0

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit" or self._actions is not None:
            return
        flops, peak = self._stated
        half = "16" in str(trainer.precision)
        self._meter = Meter(flops or count_flops(pl_module), peak or known_peak(half=half), trainer.world_size)
        self._actions = trainer.profiler = _Actions(trainer.profiler, self._meter)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if self._actions is not None and trainer.profiler is self._actions:
            trainer.profiler = self._actions.own
        self._actions = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._meter.restart()
        self._logged, self._tokens, self._samples = trainer.global_step, 0, 0

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        marks.gauge("epoch", trainer.current_epoch)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        tokens, samples = count_batch(batch)
        self._tokens += self._count_tokens(batch) if self._count_tokens is not None else tokens
        self._samples += samples
        step, often = trainer.global_step, trainer.log_every_n_steps
        if not often or step // often == self._logged // often:
            return
        self._meter.passed(Phase.OTHER)
        ranks = trainer.world_size
        values = self._meter.values(step - self._logged, tokens=self._tokens * ranks, samples=self._samples * ranks)
        self._logged, self._tokens, self._samples = step, 0, 0
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.log_metrics(values, step=step - 1)  # Lightning numbers its steps from 0
        self._meter.passed(Phase.LOG)


class _Actions(Profiler):
    """Gives the time of Lightning's actions to phases, and tells the Trainer's own profiler all it would be told.

    A step has some 25 actions, which take about 1 µs each.
    """

    def __init__(self, own: Any, meter: Meter) -> None:
        super().__init__()
        self.own = own
        self._meter = meter
        self._phase: str = Phase.OTHER
        self._open: list[str] = [Phase.OTHER]
        """The phases of the open actions."""
        self._known: dict[str, tuple[str, str]] = {}
        """Name of an action -> its phase, or an empty text, and the hook that has run when it stops."""
        self._is_evaluating = False
        self._is_logging = False
        """Whether Lightning gives loggers what a step has logged, which is between two actions."""

    def start(self, action_name: str) -> None:
        phase, _ = self._known.get(action_name) or self._learn(action_name)
        self._open.append(phase or self._open[-1])
        self._is_logging = False
        self._change()
        self.own.start(action_name)

    def stop(self, action_name: str) -> None:
        self.own.stop(action_name)
        if len(self._open) > 1:
            self._open.pop()
        _, hook = self._known.get(action_name) or self._learn(action_name)
        if hook:
            self._is_logging = hook == "on_train_batch_end"
            self._is_evaluating = hook in ("on_validation_model_eval", "on_validation_start")
        self._change()

    def _change(self) -> None:
        """End the phase if another one begins now."""
        phase = Phase.LOG if self._is_logging else self._open[-1]
        if self._is_evaluating and phase != Phase.CHECKPOINT:
            phase = Phase.EVALUATION
        if phase != self._phase:
            self._meter.passed(self._phase)
            self._phase = phase

    def _learn(self, action_name: str) -> tuple[str, str]:
        phase = next((phase for part, phase in _PHASES if part in action_name), "")
        hooks = (hook for owner, hook in _HOOKS if action_name.startswith(owner) and action_name.endswith(hook))
        known = self._known[action_name] = phase, next(hooks, "")
        return known

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "own" not in self.__dict__:  # while it is copied
            raise AttributeError(name)
        return getattr(self.__dict__["own"], name)
