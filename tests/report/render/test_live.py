"""The live view at all widths: it gives reasons for what is not known, and no text commands the terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from profiler.core.live import Snapshot, StepUse, ThreadUse, Watched
from profiler.diagnose.live import diagnose_live
from profiler.diagnose.model import LiveView
from profiler.report.render.live import live_panel
from profiler.run.model import StepDefinition, StepKind
from tests.fakes.live import gpu, snapshot

STEPS = StepUse(
    StepDefinition(StepKind.OPTIMIZER, (("SGD (train.py:9)",),)),
    10.0,
    0.5,
    0.2,
    tokens_per_s=21400.0,
    ranks=4,
)


def drawn(given: Snapshot, width: int = 100, **options: Any) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    view = LiveView(given, diagnose_live(given), not_judged="recorded at level light")
    console.print(live_panel(view, width=width, **options))
    return console.file.getvalue()


def full(**more: Any) -> Snapshot:
    return snapshot(
        steps=STEPS, gpus=(gpu(0.09, throttle=("power cap",)),), workers=(0.9, 0.2), unknown={"gpus": "a note"}, **more
    )


def test_everything_is_there() -> None:
    text = drawn(full())
    for part in (
        "train  pid 10, 2 min 05 s, not started with `profiler run`",
        "the main thread is on a CPU 98% of the time; GPU 9.0%: the host is the bottleneck",
        "not judged: recorded at level light",
        "2.00 steps/s, 500 ms a step, 21.4k tokens/s",
        "steps of SGD (train.py:9), rank 0 of 4; the last 200 ms ago",
        "python (main) 98%, running; pt_data_worker 90%, running; pt_data_worker 20%, running; and",
        "0.98 of 8 cores",
        "2.00 GB in 3 processes",
        "2, 1.10 cores, the busiest 90%",
        "Fake GPU, 9.0%",
        "memory 12.0 GB of 141 GB, power 120 W of 700 W, throttled: power cap",
        "a note",
    ):
        assert part in text, text
    assert "pt_data_pin" not in text, "it does next to nothing"


def test_what_is_not_known_says_why() -> None:
    text = drawn(snapshot(cpu=None, unknown={"cpu": "needs two readings", "steps": "not started with `profiler run`"}))
    assert "not measured: not started with `profiler run`" in text
    assert "not measured: needs two readings" in text


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_fits_the_terminal(width: int, unicode: bool) -> None:
    text = drawn(full(), width, unicode=unicode)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert unicode or text.isascii()
    assert "98%" in text


def test_few_of_many_threads_are_named_and_the_way_out_is_last() -> None:
    threads = tuple(ThreadUse(10, 10 + n, f"thread-{n:02}", "R", 0.5) for n in range(40))
    lines = drawn(full(threads=threads), leave="q leaves").splitlines()
    assert lines[-1].rstrip() == "q leaves"
    assert "and 36 more" in "".join(lines)


def test_a_name_cannot_command_the_terminal() -> None:
    text = drawn(snapshot(watched=Watched(1, "a\x1b[31m[bold]b")))
    assert "\x1b" not in text
    assert "[bold]b" in text
