"""What checkpoints cost the steps: one process that learns, blocks of steps with one and without one taking turns.

A block with a checkpoint ends when its steps do; what of the writing was left then is waited for outside of both.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from reference_trainer.devices import open_device
from reference_trainer.lm.history import History
from reference_trainer.lm.job import open_source, prepare
from reference_trainer.lm.learning import Learning, checkpoint_folder
from reference_trainer.lm.loop import _Loop
from reference_trainer.lm.settings import CHECKPOINT_EVERY
from reference_trainer.lm.snapshots import FILE
from tests.benchmarks.measure import Interval, ratio
from tests.reference_trainer.lm.learners import AHEAD, learner

ROUNDS = int(os.environ.get("ROUNDS", "100"))
BLOCK = {"tiny": 25, "small": 4}
"""Steps to a checkpoint: as few as its writing takes, so that what it costs stands out of the noise."""
MOST = 0.01
"""Fraction of the time of the steps, if a checkpoint is written every CHECKPOINT_EVERY steps."""


def measure(preset: str, folder: Path) -> tuple[Interval, float, float]:
    """Time with a checkpoint over time without; ms that one costs the steps; its MB."""
    settings = learner(None, preset=preset, fixes=AHEAD, evaluate_every=0, tokens_per_chunk=3000, samples_per_chunk=8)
    settings, block = replace(settings, checkpoint=folder, checkpoint_every=BLOCK[preset]), BLOCK[preset]
    job, history = prepare(settings), History(None)
    with ExitStack() as stack:
        place = stack.enter_context(closing(checkpoint_folder(job, folder)))
        source = stack.enter_context(closing(open_source(job)))
        device = stack.enter_context(closing(open_device("host", blocking_wait=job.chosen.blocking_wait)))
        learning = stack.enter_context(closing(Learning(job, source, device, history, checkpoints=place, say=print)))
        loop, snapshots = (
            _Loop(job, source, device, learning.model, history=history, learning=learning),
            learning.snapshots,
        )
        assert snapshots is not None
        times: dict[bool, list[float]] = {True: [], False: []}
        for number in range(ROUNDS + 1):
            for on in (True, False) if number % 2 else (False, True):
                loop._snapshots = snapshots if on else None
                began, before = time.perf_counter(), snapshots._taken
                for _ in range(block):
                    loop._step(warmup=False)
                took = time.perf_counter() - began
                assert (snapshots._taken > before) == on, "a checkpoint in each block with, in none without"
                while not snapshots._free():
                    time.sleep(0.001)
                if number:  # the first warms up
                    times[on].append(took)
        extra = statistics.median(on - off for on, off in zip(times[True], times[False], strict=True))
        return ratio(times[True], times[False]), extra * 1e3, (folder / FILE).stat().st_size / 1e6


@pytest.mark.parametrize("preset", sorted(BLOCK, reverse=True))
def test_checkpoints(preset: str, tmp_path: Path) -> None:
    seen, extra, size = measure(preset, tmp_path / "it")
    mean, low, high = ((value - 1) * BLOCK[preset] / CHECKPOINT_EVERY for value in (seen.value, seen.low, seen.high))
    print(
        f"\n{preset}: steps with a checkpoint of {size:.1f} MB every {BLOCK[preset]} over steps without {seen}; "
        f"one costs {extra:.1f} ms (median); at one every {CHECKPOINT_EVERY} {mean:+.2%} ({low:+.2%} to {high:+.2%})"
    )
    assert mean <= MOST, f"checkpoints cost more than {MOST:.0%} of the steps' time"
