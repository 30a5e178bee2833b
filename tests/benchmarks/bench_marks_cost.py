"""What the marks cost inside the trainer at level light: one process, recording switched on and off block by block.

Fresh processes differ by several percent on a shared machine; blocks that take turns within one differ by far less.
The samplers outside of the process are not in this figure (see bench_recording_cost).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profiler.run import tables
from tests.benchmarks.measure import interleaved, ratio

ROUNDS = 60
BLOCK = {"as-found": 2, "fixed": 60}  # steps, about 0.1 s each
MOST = {"as-found": 0.05, "fixed": 0.02}


def measure(variant: str) -> tuple[float, float, float]:
    """Tokens/s recorded over not recorded, with its interval."""
    from profiler import marks
    from reference_trainer.devices import open_device
    from reference_trainer.lm.history import History
    from reference_trainer.lm.job import open_source, prepare
    from reference_trainer.lm.loop import _Loop
    from reference_trainer.lm.model import initial_weights
    from reference_trainer.lm.pipeline import Pipeline
    from reference_trainer.lm.settings import Settings

    settings, block = Settings(variant=variant, device="host"), BLOCK[variant]
    job = prepare(settings)
    source = open_source(job)
    device = open_device("host", blocking_wait=job.chosen.blocking_wait)
    forward = Pipeline(device, job.config, initial_weights(job.config, 0), settings.tokens_per_chunk, job.chosen)
    loop, recorder = _Loop(job, source, device, forward, history=History(None)), marks.recorder()
    assert recorder is not None, "start this with recording on"

    def tokens_per_s(on: bool) -> float:
        marks._recorder = recorder if on else None
        began = time.perf_counter()
        return sum(loop._step(warmup=False).tokens for _ in range(block)) / (time.perf_counter() - began)

    rates = interleaved({on: lambda _, on=on: tokens_per_s(on) for on in (True, False)}, ROUNDS + 1)
    marks._recorder = recorder
    source.close()
    device.close()
    seen = ratio(rates[True][1:], rates[False][1:])  # the first round warms up
    return seen.value, seen.low, seen.high


@pytest.mark.parametrize("variant", sorted(BLOCK))
def test_marks(variant: str, tmp_path: Path) -> None:
    environment = {**os.environ, tables.ENV_RUN: str(tmp_path), tables.ENV_LEVEL: "light"}
    command = [sys.executable, "-m", "tests.benchmarks.bench_marks_cost", variant]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    mean, low, high = map(float, done.stdout.split())
    print(f"\n{variant}: tokens/s with marks on over off, {ROUNDS} rounds: {mean:.4f} ({low:.4f} to {high:.4f})")
    assert high >= 1 - MOST[variant]


if __name__ == "__main__":
    print(*measure(sys.argv[1]))
