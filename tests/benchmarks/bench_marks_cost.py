"""What the marks cost inside the trainer at level light: one process, recording switched on and off block by block.

Fresh processes differ by several percent on a shared machine; blocks that take turns within one differ by far less.
The samplers outside of the process are not in this figure (see bench_recording_cost).
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profiler.run import tables

ROUNDS = 60
BLOCK = {"as-found": 2, "fixed": 60}  # steps, about 0.1 s each
MOST = {"as-found": 0.05, "fixed": 0.02}


def measure(variant: str) -> tuple[float, float, float]:
    """(median, mean, two standard errors) of tokens/s recorded over not recorded, over the rounds."""
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
    logs = []
    for number in range(ROUNDS + 1):
        rates = {}
        for on in (True, False) if number % 2 else (False, True):
            marks._recorder = recorder if on else None
            began = time.perf_counter()
            tokens = sum(loop._step(warmup=False).tokens for _ in range(block))
            rates[on] = tokens / (time.perf_counter() - began)
        logs.append(math.log(rates[True] / rates[False]))
    marks._recorder = recorder
    source.close()
    device.close()
    kept = logs[1:]  # the first warms up
    error = 2 * statistics.stdev(kept) / math.sqrt(len(kept))
    return math.exp(statistics.median(kept)), math.exp(statistics.fmean(kept)), error


@pytest.mark.parametrize("variant", sorted(BLOCK))
def test_marks(variant: str, tmp_path: Path) -> None:
    environment = {**os.environ, tables.ENV_RUN: str(tmp_path), tables.ENV_LEVEL: "light"}
    command = [sys.executable, "-m", "tests.benchmarks.bench_marks_cost", variant]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    median, mean, error = map(float, done.stdout.split())
    print(f"\n{variant}: marks on over off, {ROUNDS} rounds: median {median:.4f}, mean {mean:.4f} +- {error:.4f}")
    assert mean + error >= 1 - MOST[variant]


if __name__ == "__main__":
    print(*measure(sys.argv[1]))
