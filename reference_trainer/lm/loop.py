"""The training loop: chunk after chunk, each a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from profiler import marks
from reference_trainer.devices import open_device
from reference_trainer.devices.protocol import Device
from reference_trainer.errors import TrainerError
from reference_trainer.lm import as_found, fixed, stated
from reference_trainer.lm.chunks import Source
from reference_trainer.lm.history import History
from reference_trainer.lm.job import Job, facts, open_source, prepare
from reference_trainer.lm.model import Weights, initial_weights
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.result import IN_FLIGHT, Metrics, NotWrittenError, Result, Run, Summary, running
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

            size = settings.products, settings.tokens_per_chunk
            if model := roofline.facts(job.config, device.label, *size, learn=job.plan.learn):
                marks.describe(roofline=model)
        if device.note:
            say(device.note)
        rounding = "" if settings.products == "fp32" else f", products in {settings.products}"
        say(f"{job.label} on {device.label}, preset {settings.preset}{rounding}, corpus {corpus.name}")
        weights = None if job.plan.learn else initial_weights(job.config, settings.seed)
        statements = stated.statements(job, source, device, weights)
        if statements:
            source, device = statements, statements.device
        if weights is not None:
            if settings.fixes is None:
                run = program(settings.variant, source, device, weights, settings.tokens_per_chunk)
            else:
                pipeline = Pipeline(device, job.config, weights, settings.tokens_per_chunk, job.plan)
                run = running(pipeline, source, depth=_depth(job))
            return _Loop(job, device, run, history, statements).run(say)
        from reference_trainer.lm.learning import Learning

        learning = stack.enter_context(closing(Learning(job, device, history, checkpoints=checkpoints, say=say)))
        marks.describe(**learning.facts())
        run = running(learning.model, source, depth=_depth(job))
        return _Loop(job, device, run, history, statements, learning=learning).run(say)


def _depth(job: Job) -> int:
    """Chunks in flight."""
    return IN_FLIGHT if job.plan.prefetch else 1


def program(variant: str, source: Source, device: Device, weights: Weights, tokens: int) -> Run:
    """The loop of the variant, for chunks of so many predictions."""
    if variant == "as-found":
        return as_found.train(source, device, weights)
    return fixed.train(source, device, weights, tokens)


def _checkpoints(job: Job) -> AbstractContextManager[CheckpointFolder | None]:
    """The folder of checkpoints, if they are requested; it is checked before the device is opened."""
    if job.settings.checkpoint is None:
        return nullcontext()
    from reference_trainer.lm.learning import checkpoint_folder

    return closing(checkpoint_folder(job, job.settings.checkpoint))


def _silent(line: str) -> None:
    """Ignore progress lines."""


class _Loop:
    """One run over the chunks: warm-up, then the measured steps, then what a recorded run states at its end.

    Each of them begins and ends with no chunk in flight: all the work of the measured chunks is measured, and no other.
    """

    def __init__(
        self,
        job: Job,
        device: Device,
        run: Run,
        history: History,
        statements: stated.Statements | None,
        *,
        learning: Learning | None = None,
    ) -> None:
        self._settings = job.settings
        self._statements = statements
        self._device = device
        self._history = history
        self._run = run
        self._learning = learning
        self._snapshots = learning.snapshots if learning else None
        self._empty_cache = emptying(job.settings.performance, device.kind)
        self._measures = False
        """The warm-up is over."""
        self._submitted = self._collected = 0  # chunks
        self._before = 0
        """Chunks of the warm-up."""
        self._tokens = 0
        self._began = 0.0
        self._held_out: dict[str, float] = {}
        """Values to report with the next step."""
        self._note = ""

    def run(self, say: Callable[[str], None]) -> Summary:
        marks.open_step()
        try:
            self._warm_up()
            self._begin()
            summary = self._finish(self._measure(say))
            if self._statements:
                self._statements.finish()
                self._state_from_zero(0)
                self._statements.repeat(self._run)
            return summary
        except NotWrittenError:
            raise  # all was kept that can be
        except BaseException as error:
            rescued = self._rescue()
            if isinstance(error, KeyboardInterrupt) and rescued:
                when = f"after step {self._step_number}" if self._measures else "in the warm-up"
                raise KeyboardInterrupt(f"interrupted {when}; {rescued}") from None
            raise

    def _measure(self, say: Callable[[str], None]) -> Summary:
        """Run the measured steps; their summary, with the evaluation of a model that learned."""
        metrics, first, last_report = Metrics(), self._collected, self._began
        seconds, chunks = self._settings.seconds, self._settings.max_chunks
        last = None if chunks is None else self._before + chunks
        while self._submitted == first or self._goes_on(last, seconds):
            self._evaluate()
            for result in self._run(self._numbers(last, seconds)):
                self._step(result)
                metrics.add(result)
                now = time.perf_counter()
                if now - last_report > 1:
                    last_report = now
                    with marks.region("log"):
                        speed = self._tokens / (now - self._began)
                        say(f"chunk {self._step_number}: {speed:,.0f} tokens/s{self._note}")
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

    def _goes_on(self, last: int | None, seconds: float) -> bool:
        """Whether to submit another chunk: those below `last`, or as many as fit into so many seconds."""
        if last is not None:
            return self._submitted < last
        return time.perf_counter() - self._began < seconds

    def _numbers(self, last: int | None, seconds: float) -> Iterator[int]:
        """Numbers of the next chunks, one at least, up to an evaluation on held-out text."""
        learning, measured = self._learning, self._measures
        while True:
            yield self._submitted
            self._submitted += 1
            if self._snapshots and measured:
                self._snapshots.submitted(self._submitted)
            if not self._goes_on(last, seconds) or (measured and learning and learning.pauses(self._submitted)):
                return

    def _warm_up(self) -> None:
        self._began, seconds = time.perf_counter(), self._settings.warmup_seconds
        if self._statements:
            for result in self._statements.in_full(self._run, range(stated.CHUNKS), is_first=True):
                self._step(result)
            self._submitted = self._collected
            self._state_from_zero()
        if not self._collected or self._goes_on(None, seconds):
            for result in self._run(self._numbers(None, seconds)):
                self._step(result)

    def _state_from_zero(self, *chunks: int) -> None:
        """State the chunks of the vocabulary and these, beside the steps and from a state of zero."""
        statements = self._statements
        if statements and not self._learning and not statements.is_late:
            statements.reset()
            for _ in statements.in_full(self._run, (*statements.each_id(), *chunks)):
                pass
            marks.open_step()

    def _begin(self) -> None:
        """Discard the metrics of the warm-up, and what was learned in it."""
        self._before = self._collected
        if self._learning:
            self._learning.restart()
            self._submitted = self._collected = self._learning.first
            self._before = 0
            marks.open_step()
        self._measures = True
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

    def _rescue(self) -> str:
        """Keep what there is of a run that ends early; a phrase that names it.

        Before the measured steps, an earlier file of metrics may have more rows than a checkpoint: it stays.
        """
        rescued = self._history.rescue() if self._measures else "", self._snapshots.rescued() if self._snapshots else ""
        return ", ".join(filter(None, rescued))

    # ------------------------------------------------------------ a step

    def _step(self, result: Result) -> None:
        """End the step of a chunk, which is done."""
        obey()
        with marks.region("results"):
            if self._statements:
                self._statements.note(self._collected, result)
            self._collected += 1
            self._tokens += result.tokens
            self._empty_cache()
            if result.loss is not None and not self._settings.empty_kernels:
                self._report(result)
            marks.gauge("device_memory", self._device.reserved_bytes)
        if self._snapshots and self._measures:
            self._snapshots.collected(self._collected)
        marks.step(tokens=result.tokens, warmup=not self._measures)

    def _report(self, result: Result) -> None:
        assert result.loss is not None
        assert result.accuracy is not None
        values = {"loss": result.loss, "accuracy": result.accuracy, **self._held_out}
        self._held_out = {}
        for name, value in (*values.items(), *result.rates.items()):
            marks.gauge(name, value)
        if self._measures:
            speed = self._tokens / (time.perf_counter() - self._began)
            self._history.add(self._step_number, tokens_per_s=speed, lr=result.rates.get("learning_rate"), **values)
