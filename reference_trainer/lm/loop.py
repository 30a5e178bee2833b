"""The training loop: chunk after chunk, each a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from profiler import marks
from reference_trainer.devices import open_device
from reference_trainer.devices.protocol import Device
from reference_trainer.errors import TrainerError
from reference_trainer.lm import stated
from reference_trainer.lm.chunks import Source
from reference_trainer.lm.history import History
from reference_trainer.lm.job import Job, facts, open_source, prepare
from reference_trainer.lm.model import initial_weights
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.result import IN_FLIGHT, Forward, Metrics, NotWrittenError, Result, Summary
from reference_trainer.lm.settings import Settings
from reference_trainer.performance import apply, emptying, memory_of
from reference_trainer.program import obey

if TYPE_CHECKING:
    from reference_trainer.lm.learning import Learning
    from reference_trainer.lm.snapshots import CheckpointFolder


def train(settings: Settings, progress: Callable[[str], None] | None = None) -> Summary:
    """Run the trainer; `progress` gets a line now and then. Bad input is a TrainerError."""
    say = progress or _silent
    job, history = prepare(settings), History(settings.metrics)
    options: dict[str, Any] = {
        "blocking_wait": job.plan.blocking_wait,
        "empty_kernels": settings.empty_kernels,
        "products": settings.dtype,
    }
    corpus = job.text.corpus
    if corpus.skipped:
        say(f"skipped {corpus.skipped} broken lines of {corpus.name}; the first: {corpus.first_skipped}")
    with ExitStack() as stack:
        checkpoints = stack.enter_context(_checkpoints(job))
        source = stack.enter_context(closing(open_source(job)))
        device = stack.enter_context(closing(open_device(settings.device, **options)))
        if device.kind == "cuda" and settings.performance.changed:
            apply(replace(settings.performance, tf32=settings.products == "tf32"), device.kind)
        marks.describe(**facts(job, device))
        if device.kind == "cuda":
            from reference_trainer.lm import roofline

            if model := roofline.facts(job.config, device.label, settings.products, settings.tokens_per_chunk):
                marks.describe(roofline=model)
        if device.note:
            say(device.note)
        rounding = "" if settings.products == "fp32" else f", products in {settings.products}"
        say(f"{job.label} on {device.label}, preset {settings.preset}{rounding}, corpus {corpus.name}")
        if not job.plan.learn:
            weights = initial_weights(job.config, settings.seed)
            forward = Pipeline(device, job.config, weights, settings.tokens_per_chunk, job.plan)
            return _Loop(job, source, device, forward, history=history).run(say)
        from reference_trainer.lm.learning import Learning

        learning = stack.enter_context(closing(Learning(job, device, history, checkpoints=checkpoints, say=say)))
        marks.describe(**learning.facts())
        loop = _Loop(job, source, device, learning.model, history=history, learning=learning)
        return loop.run(say)


def _checkpoints(job: Job) -> AbstractContextManager[CheckpointFolder | None]:
    """The folder of checkpoints, if they are requested; it is checked before the device is opened."""
    if job.settings.checkpoint is None:
        return nullcontext()
    from reference_trainer.lm.learning import checkpoint_folder

    return closing(checkpoint_folder(job, job.settings.checkpoint))


def _silent(line: str) -> None:
    """Ignore progress lines."""


class _Loop:
    """One run over the chunks: warm-up, then the measured steps.

    Both begin and end with no chunk in flight: all the work of the measured chunks is measured, and no other.
    """

    def __init__(
        self,
        job: Job,
        source: Source,
        device: Device,
        forward: Forward,
        *,
        history: History,
        learning: Learning | None = None,
    ) -> None:
        self._settings = job.settings
        fits = stated.are_stated(job.config, job.settings.tokens_per_chunk, learn=job.plan.learn)
        is_stating = marks.recorder() is not None and not job.settings.empty_kernels and fits
        self._stated = stated.CHUNKS if is_stating else 0
        """Chunks of the warm-up whose results are stated."""
        self._tolerance = stated.tolerance(job.settings.stated_dtype, job.config.width)
        self._source = source
        self._device = device
        self._history = history
        self._forward = forward
        self._learning = learning
        self._snapshots = learning.snapshots if learning else None
        self._empty_cache = emptying(job.settings.performance, device.kind)
        self._depth = IN_FLIGHT if job.plan.prefetch else 1
        self._submitted = self._collected = 0  # chunks
        self._last: int | None = None
        """Chunk after which none is submitted; None: not known yet."""
        self._before = 0
        """Chunks of the warm-up."""
        self._tokens = 0
        self._began = 0.0
        self._held_out: dict[str, float] = {}
        """Values to report with the next step."""
        self._note = ""

    def run(self, say: Callable[[str], None]) -> Summary:
        marks.open_step()
        measured = False
        try:
            self._warm_up()
            self._begin()
            measured = True
            return self._finish(self._measure(say))
        except NotWrittenError:
            raise  # all was kept that can be
        except BaseException as error:
            rescued = self._rescue(measured=measured)
            if isinstance(error, KeyboardInterrupt) and rescued:
                when = f"after step {self._step_number}" if measured else "in the warm-up"
                raise KeyboardInterrupt(f"interrupted {when}; {rescued}") from None
            raise

    def _measure(self, say: Callable[[str], None]) -> Summary:
        """Run the measured steps; their summary, with the evaluation of a model that learned."""
        metrics, first, last_report = Metrics(), self._collected, self._began
        while not self._ended:
            self._evaluate()
            metrics.add(self._step(warmup=False))
            now = time.perf_counter()
            if now - last_report > 1:
                last_report = now
                with marks.region("log"):
                    say(f"chunk {self._step_number}: {self._tokens / (now - self._began):,.0f} tokens/s{self._note}")
        seconds = time.perf_counter() - self._began
        loss, accuracy = (None, None) if self._settings.empty_kernels else metrics.means()
        steps = self._collected - first
        peak = memory_of("cuda" if self._device.kind == "cuda" else "cpu").peak
        summary = Summary(steps, self._tokens, seconds, self._tokens / seconds, loss, accuracy, peak_memory_bytes=peak)
        return replace(summary, **self._learning.reached(steps)) if self._learning else summary

    @property
    def _step_number(self) -> int:
        """Counted from 1 without the warm-up; a resumed run counts on."""
        return self._collected - self._before

    @property
    def _ended(self) -> bool:
        return self._last is not None and self._collected >= self._last

    def _end_after(self, seconds: float, *, chunks: int = 0) -> None:
        """Submit no more chunks once `seconds` have passed since `_began`; those in flight are still steps.

        :param chunks: as many are submitted all the same, unless they take too long.
        """
        elapsed = time.perf_counter() - self._began
        enough = self._submitted >= chunks or elapsed >= stated.MAX_SECONDS
        if self._last is None and elapsed >= seconds and enough:
            self._last = self._submitted

    def _warm_up(self) -> None:
        self._last = None if self._settings.warmup_seconds or self._stated else 1
        self._began = time.perf_counter()
        while not self._ended:
            self._step(warmup=True)

    def _begin(self) -> None:
        """Discard the metrics of the warm-up, and what was learned in it."""
        self._forward.flush()
        self._before, max_chunks = self._collected, self._settings.max_chunks
        if self._learning:
            self._learning.restart()
            self._submitted = self._collected = self._learning.first
            self._before = 0
            marks.open_step()
        self._last = None if max_chunks is None else self._before + max_chunks
        self._tokens = 0
        self._began = time.perf_counter()

    def _evaluate(self) -> None:
        """Evaluate on held-out text between two steps; its time counts for none of them."""
        if self._learning and self._learning.pauses(self._collected):
            began = time.perf_counter()
            self._held_out = self._learning.evaluate()
            self._note = f", held-out cross-entropy {self._held_out['heldout_loss']:.2f}"
            marks.open_step()
            self._began += time.perf_counter() - began

    def _finish(self, summary: Summary) -> Summary:
        """Write what is left to be written: all of it that can be.

        :raises NotWrittenError: some of it could not.
        """
        faults = []
        try:
            self._history.write()
        except TrainerError as error:
            faults.append(str(error))
        try:
            if self._snapshots:
                self._snapshots.finish(self._collected)
        except TrainerError as error:
            faults.append(str(error))
        if faults:
            raise NotWrittenError("; ".join(faults), summary)
        return summary

    def _rescue(self, *, measured: bool) -> str:
        """Keep what there is of a run that ends early; a phrase that names it.

        :param measured: it came to the measured steps. Before, a file of metrics may have more rows than a checkpoint.
        """
        rescued = self._history.rescue() if measured else "", self._snapshots.rescued() if self._snapshots else ""
        return ", ".join(filter(None, rescued))

    # ------------------------------------------------------------ a step

    def _step(self, *, warmup: bool) -> Result:
        obey()
        self._fill(warmup=warmup)
        with marks.region("results"):
            result = self._forward.collect()
            if warmup and self._collected < self._stated:
                stated.state(self._forward.outcome(), self._tolerance, chunk=self._collected)
            self._collected += 1
            self._tokens += result.tokens
            self._empty_cache()
            if warmup:
                self._end_after(self._settings.warmup_seconds, chunks=self._stated)
            else:
                self._end_after(self._settings.seconds)
            if result.loss is None and self._ended and not warmup:
                result = self._with_unread(result)
            if result.loss is not None and not self._settings.empty_kernels:
                self._report(result, warmup=warmup)
            marks.gauge("device_memory", self._device.reserved_bytes)
        if self._snapshots and not warmup:
            self._snapshots.collected(self._collected)
        marks.step(tokens=result.tokens, warmup=warmup)
        return result

    def _with_unread(self, last: Result) -> Result:
        """The last measured chunk, with the accumulated metrics that were not read yet."""
        unread = self._forward.flush()
        if unread is None:
            return last
        return replace(last, loss=unread.loss, accuracy=unread.accuracy, covers=unread.covers)

    def _fill(self, *, warmup: bool) -> None:
        """Submit the next chunk; with prefetch also the one after it, while the device computes."""
        learning = self._learning
        while self._submitted - self._collected < self._depth and self._submitted != self._last:
            if learning and self._submitted > self._collected and learning.pauses(self._submitted):
                return  # the evaluation comes first, with nothing in flight
            keep = warmup and self._submitted < self._stated
            self._forward.submit(self._source.ids(self._submitted), keep=keep)
            self._submitted += 1
            if self._snapshots and not warmup:
                self._snapshots.submitted(self._submitted)

    def _report(self, result: Result, *, warmup: bool) -> None:
        assert result.loss is not None
        assert result.accuracy is not None
        values = {"loss": result.loss, "accuracy": result.accuracy, **self._held_out}
        self._held_out = {}
        for name, value in (*values.items(), *result.rates.items()):
            marks.gauge(name, value)
        if not warmup:
            speed = self._tokens / (time.perf_counter() - self._began)
            self._history.add(self._step_number, tokens_per_s=speed, lr=result.rates.get("learning_rate"), **values)
