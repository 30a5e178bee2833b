"""The parts of a learning run outside its steps: resuming, evaluation on held-out text, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from profiler import marks
from reference_trainer.devices.protocol import Device
from reference_trainer.errors import TrainerError
from reference_trainer.lm.heldout import Yardstick, goal_of, split
from reference_trainer.lm.history import COLUMNS, History
from reference_trainer.lm.job import Job, optimizer
from reference_trainer.lm.learn_chunk import LearnChunk
from reference_trainer.lm.model import initial_weights_for_learning
from reference_trainer.lm.settings import CHECKPOINT_EVERY, EVALUATE_EVERY
from reference_trainer.lm.snapshots import HISTORY, CheckpointFolder, Origin, Snapshots, open_checkpoint_folder


def origin(job: Job) -> Origin:
    """The origin that this run's checkpoints state."""
    return {
        "model": asdict(job.config),
        "corpus_sha256": job.text.corpus.sha256,
        "tokenizer": job.text.tokenizer.fingerprint,
        "tokens_per_chunk": job.settings.tokens_per_chunk,
        "samples_per_chunk": job.settings.samples_per_chunk,
        "optimizer": asdict(optimizer(job.settings)),
        "seed": job.settings.seed,
        "dtype": job.settings.stated_dtype,
    }


def checkpoint_folder(job: Job, folder: Path) -> CheckpointFolder:
    """The folder of the run's checkpoints, opened and checked before anything else; to be closed.

    :raises TrainerError: see `open_checkpoint_folder`; or the checkpoint is of the last step already.
    """
    checkpoints = open_checkpoint_folder(folder, origin(job), resume=job.settings.resume)
    last_step = job.settings.max_chunks
    if checkpoints.begun and last_step is not None and checkpoints.begun.step >= last_step:
        checkpoints.close()
        raise TrainerError(
            f"--max-chunks {last_step}: the checkpoint in {folder} is of step {checkpoints.begun.step}: raise it"
        )
    return checkpoints


class Learning:
    """A model that learns, and the course of its run. Close it: a thread may be writing a checkpoint.

    :param say: gets a line now and then.
    :ivar first: number of steps before this run, if it was resumed.
    :ivar snapshots: writes the checkpoints; None: there are none.
    """

    def __init__(
        self,
        job: Job,
        device: Device,
        history: History,
        *,
        checkpoints: CheckpointFolder | None,
        say: Callable[[str], None],
    ) -> None:
        settings = job.settings
        self._job = job
        self._device = device
        self._training, held_out = split(job.text)
        self.goal = goal_of(self._training, held_out, job.config.vocabulary)
        self._every = EVALUATE_EVERY if settings.evaluate_every is None else settings.evaluate_every
        self._optimizer = optimizer(settings)
        weights = initial_weights_for_learning(job.config, settings.seed)
        tokens, graph = settings.tokens_per_chunk, job.plan.graph
        self.model = LearnChunk(device, job.config, weights, tokens, optimizer=self._optimizer, graph=graph)
        self._buffers = self.model.everything()
        self._cpu_began = time.process_time()
        self._evaluating_s = 0.0
        """CPU time of evaluations, which is not time of learning."""
        begun = checkpoints.begun if checkpoints else None
        self.first = begun.step if begun else 0
        self.snapshots: Snapshots | None = None
        if begun:
            expected = {name: tuple(buffer.shape) for name, buffer in self._buffers.items()}
            expected[HISTORY] = (self.first, len(COLUMNS))
            if {name: array.shape for name, array in begun.arrays.items()} != expected:
                raise TrainerError(f"{settings.checkpoint}: the checkpoint is not of this program: begin anew")
            self._begin = dict(begun.arrays)
            history.restore(self._begin.pop(HISTORY))
            say(f"going on after step {begun.step}, from {settings.checkpoint}")
            if begun.device != device.kind:
                say(f"that step was done on device {begun.device}: losses here differ from those there by rounding")
        else:
            self._begin = {name: device.download(buffer) for name, buffer in self._buffers.items()}
        if checkpoints:
            every = settings.checkpoint_every or CHECKPOINT_EVERY
            self.snapshots = Snapshots(device, checkpoints, self._buffers, history.head, every=every, say=say)

    def facts(self) -> dict[str, Any]:
        """Facts for the profiler."""
        return {
            "vocabulary": self._job.config.vocabulary,
            "uniform_loss": self.goal.uniform_loss,
            "training_samples": len(self._training.samples),
            "heldout_chunks": len(self.goal.held_out),
            "evaluate_every": self._every,
            "checkpoint_every": self.snapshots.every if self.snapshots else None,
            "optimizer": asdict(self._optimizer),
            "resumed_after": self.first,
        }

    def restart(self) -> None:
        """Forget the warm-up: parameters, moments, step count and state as they were, or as in the checkpoint."""
        for name, buffer in self._buffers.items():
            self._device.upload_into(buffer, self._begin[name])
        self._device.synchronize()
        self._begin.clear()
        self._cpu_began = time.process_time()
        self._evaluating_s = 0.0

    def pauses(self, step: int) -> bool:
        """Whether held-out text is evaluated after `step` steps: no further chunk may be in flight then."""
        return self._every > 0 and step % self._every == 0

    def evaluate(self) -> dict[str, float]:
        """Loss and accuracy on the held-out text, by the names of their gauges."""
        began = time.process_time()
        with marks.region("evaluate"):
            result = self.model.evaluate(self.goal.held_out)
        self._evaluating_s += time.process_time() - began
        assert result.loss is not None
        assert result.accuracy is not None
        return {"heldout_loss": result.loss, "heldout_accuracy": result.accuracy}

    def reached(self, steps: int) -> dict[str, Any]:
        """The results of the model after `steps` steps and of the yardsticks, which are also recorded as facts.

        :param steps: steps of this run; those before it, if it was resumed, are added to its tokens.
        """
        cpu_s = time.process_time() - self._cpu_began - self._evaluating_s
        tokens = (self.first + steps) * self._job.settings.tokens_per_chunk
        values = self.evaluate()
        ours = Yardstick(
            "this model",
            values["heldout_loss"],
            values["heldout_accuracy"],
            parameters=self.model.parameters,
            tokens=tokens,
            cpu_s=None if self.first else cpu_s,  # the time before the checkpoint is not known
        )
        yardsticks = (ours, *self.goal.counts)
        marks.describe(**values, yardsticks=[asdict(yardstick) for yardstick in yardsticks])
        return {**values, "yardsticks": yardsticks, "uniform_loss": self.goal.uniform_loss}

    def close(self) -> None:
        """Wait for a checkpoint that is being written."""
        if self.snapshots:
            self.snapshots.close()
