"""What the search for unused gradients costs a healthy program: a transformer of 8 layers, in one process.

Trainings with and without the search alternate. It looks at four backward passes of each. Behind them it is over, and
costs the test of an attribute.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from pathlib import Path

import pytest

from profiler.agent.hooks import optimizers, stages
from profiler.agent.hooks._unused_gradients import _PASSES, _STEPS, Search
from tests.benchmarks.measure import interleaved, mean_interval
from tests.fakes.watched import watched

torch = pytest.importorskip("torch")
ROUNDS = 60
FIRST, LAST = _STEPS, _STEPS + _PASSES
"""The steps in which it looks at a pass."""
MOST_MS = 20.0


def _no_search() -> Search:
    search = Search()
    search.is_over = True
    return search


def step_times(folder: Path) -> list[float]:
    """Milliseconds of the steps of a training."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters())
    batch, times = torch.randn(4, 32, 64), []
    with watched(folder, (stages.BACKWARD, torch.autograd), (optimizers.PLUGIN, sys.modules["torch.optim.optimizer"])):
        for _ in range(LAST):
            begin = time.perf_counter()
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            times.append(1e3 * (time.perf_counter() - begin))
    return times


def test_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    numbers = itertools.count()

    def train(on: bool) -> list[float]:
        monkeypatch.setattr(stages, "Search", Search if on else _no_search)
        return step_times(tmp_path / str(next(numbers)))

    times = interleaved({on: lambda _, on=on: train(on) for on in (True, False)}, ROUNDS + 1)
    pairs = list(zip(times[True], times[False], strict=True))[1:]  # the first round warms up
    more = mean_interval([sum(on[FIRST:]) - sum(off[FIRST:]) for on, off in pairs])
    without = statistics.fmean(sum(off[FIRST:]) for _, off in pairs)
    print(
        f"\nsearch: {more.value:.1f} ms ({more.low:.1f} to {more.high:.1f}) in {LAST - FIRST} steps of {without:.1f} ms"
    )
    assert more.low < MOST_MS
