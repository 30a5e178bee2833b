"""Runs a chunk through the four stages, each in the variant that the plan selects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from profiler import marks
from reference_trainer.devices.protocol import Device
from reference_trainer.kernels import rewards
from reference_trainer.lm.model import ModelConfig, Weights
from reference_trainer.lm.plan import Plan
from reference_trainer.lm.replay import Replay
from reference_trainer.lm.result import IN_FLIGHT, KEPT_CHUNKS, QUIET_CHUNKS, Result, kept_place
from reference_trainer.lm.stages import Stage, Work
from reference_trainer.lm.stages.decode import DecodeChunk, DecodeTokens
from reference_trainer.lm.stages.embed import EmbedChunk, EmbedTokens
from reference_trainer.lm.stages.loss import LossChunk, LossOnDevice, LossTokens
from reference_trainer.lm.stages.recurrence import RecurrenceChunk, RecurrenceTokens


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A chunk that was submitted but not collected yet."""

    tokens: int
    ticket: Any
    """Ticket to wait for. None: downloading the metrics waits instead."""
    metrics: np.ndarray | None
    """Host memory that receives loss and accuracy; None: they were not requested."""
    covered_tokens: int
    """Number of tokens that the metrics cover; 0: they are not read with this chunk."""
    predicted: Any
    """Predicted ids on the device; None: the next chunk overwrites them."""


class Pipeline:
    """Runs the forward pass over chunks of at most `capacity` predictions; the state is carried from chunk to chunk."""

    def __init__(self, device: Device, config: ModelConfig, weights: Weights, capacity: int, plan: Plan) -> None:
        self._device = device
        self._plan = plan
        self._work = work = Work(device, config, weights, capacity, plan)
        self._loss = _loss(work)
        self._segments = _segments(
            work,
            (
                EmbedChunk(work, weights) if plan.embed == "chunk" else EmbedTokens(work, weights),
                RecurrenceChunk(work) if plan.recurrence == "chunk" else RecurrenceTokens(work),
                DecodeChunk(work) if plan.decode == "chunk" else DecodeTokens(work),
                self._loss,
            ),
        )
        self._needs_ids = plan.embed == "chunk" or plan.loss == "device"
        self._results = device.zeros((3,))
        self._totals = device.zeros((2,))
        # Two of each buffer that host and device share: the host uses one while the device uses the other.
        slots = range(IN_FLIGHT if plan.zero_copy else 0)
        self._staged = [device.pinned((capacity + 1,), "int32") for _ in slots]
        self._fetched = [device.pinned((3,)) for _ in slots]
        self._copy_ids = work.uploader((capacity + 1,), "int32") if self._needs_ids else None
        self._ids = [device.empty((capacity + 1,), "int32") for _ in range(IN_FLIGHT if plan.prefetch else 0)]
        self._replay = Replay(device, capacity if plan.graph else 0)
        self._submitted = 0
        self._flying: deque[_InFlight] = deque()
        self._known: Result | None = None  # set if the host computed the loss
        self._unread = [0, 0]  # chunks and tokens whose metrics were summed up and not fetched yet

    def submit(self, ids: np.ndarray, number: int = KEPT_CHUNKS) -> None:
        """Run chunk `number`, `ids` (T + 1,): predict ids[t + 1] from ids[: t + 1]; return once it is submitted."""
        if len(self._flying) == IN_FLIGHT:
            raise RuntimeError(f"{IN_FLIGHT} chunks are in flight already: collect one")
        with marks.region("forward"):
            work, tokens = self._work, len(ids) - 1
            work.tokens, work.ids, work.place = tokens, ids, kept_place(number)
            if self._needs_ids:
                work.ids_on_device = self._upload_ids(ids)
            self._replay.run(self._submitted % IN_FLIGHT, tokens, self._launch)  # ids alternate between slots
            right = self._loss.right()
            if right is None:
                self._flying.append(self._fetch(tokens))
            else:
                predicted = np.array(work.predicted, np.int32)
                self._known = Result(tokens, 1 - right / tokens, right / tokens, tokens, predicted=predicted)
            self._submitted += 1

    def collect(self) -> Result:
        """Wait for the oldest submitted chunk.

        Loss and accuracy are None in the result if quiet-logging does not read them with this chunk.
        """
        if not self._flying:
            assert self._known is not None
            return self._known
        flying = self._flying.popleft()
        metrics = flying.metrics
        if flying.ticket is not None:
            self._device.wait(flying.ticket)
        if metrics is None:
            if not flying.covered_tokens:
                return Result(flying.tokens, None, None, 0, predicted=flying.predicted)
            metrics = self._device.download(self._totals if self._plan.quiet else self._results)
        scale = 1 / flying.covered_tokens if self._plan.quiet else 1.0
        loss, accuracy = float(metrics[0]) * scale, float(metrics[1]) * scale
        return Result(flying.tokens, loss, accuracy, flying.covered_tokens, predicted=flying.predicted)

    def flush(self) -> Result | None:
        """Metrics of all chunks since the last reading, or None if there are none; waits for the device."""
        _, covers = self._unread
        if not covers:
            return None
        self._unread = [0, 0]
        totals = self._device.download(self._totals)
        return Result(0, float(totals[0]) / covers, float(totals[1]) / covers, covers)

    def _launch(self) -> None:
        work = self._work
        for run in self._segments:
            run()
        self._device.launch(rewards.MODULATE, self._results, work.correct, work.modulator, work.tokens)

    def _upload_ids(self, ids: np.ndarray) -> Any:
        assert self._copy_ids is not None
        slot, source = self._submitted % IN_FLIGHT, ids
        if self._staged:
            source = self._staged[slot][: len(ids)]
            source[:] = ids
        if not self._ids:
            return self._copy_ids(source)
        self._device.prefetch_into(self._ids[slot], source)
        return self._ids[slot]

    def _fetch(self, tokens: int) -> _InFlight:
        """Request the chunk's metrics; with quiet-logging, those of the last QUIET_CHUNKS chunks at once."""
        device, covers, source = self._device, tokens, self._results
        kept = None if self._plan.graph else self._work.prediction
        if self._plan.quiet:
            chunks, before = self._unread
            device.launch(rewards.ACCUMULATE, self._totals, self._results, tokens, int(chunks == 0))
            self._unread = [chunks + 1, before + tokens]
            if chunks + 1 < QUIET_CHUNKS:
                return _InFlight(tokens, device.mark(), None, 0, kept)
            self._unread, covers, source = [0, 0], before + tokens, self._totals
        if not self._fetched:
            return _InFlight(tokens, None, None, covers, kept)
        metrics = self._fetched[self._submitted % IN_FLIGHT][: source.shape[0]]
        return _InFlight(tokens, device.fetch_into(metrics, source), metrics, covers, kept)


def _loss(work: Work) -> LossTokens | LossChunk | LossOnDevice:
    if work.plan.loss == "device":
        return LossOnDevice(work)
    return LossTokens(work) if work.plan.decode == "tokens" and not work.plan.asynchronous else LossChunk(work)


def _segments(work: Work, stages: Sequence[Stage]) -> list[Callable[[], None]]:
    """Functions that run a chunk in sequence; consecutive stages that go token by token share one loop."""
    segments: list[Callable[[], None]] = []
    for batched, group in groupby(stages, key=attrgetter("batched")):
        if batched:
            segments += map(_whole, group)
        else:
            segments.append(_token_loop(work, tuple(group)))
    return segments


def _whole(stage: Stage) -> Callable[[], None]:
    def run() -> None:
        stage.begin()
        stage.chunk()

    return run


def _token_loop(work: Work, stages: tuple[Stage, ...]) -> Callable[[], None]:
    steps = tuple(stage.token for stage in stages)

    def run() -> None:
        with marks.region("token loop"):
            for stage in stages:
                stage.begin()
            for t in range(work.tokens):
                for step in steps:
                    step(t)

    return run
