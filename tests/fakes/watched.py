"""Hooks installed in this process for a while, as they are in a recorded program, and the run that they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from profiler.agent.patching import STATE, Hook, unpatch
from profiler.agent.recorder import Recorder
from profiler.run import store
from profiler.run.load import load
from profiler.run.model import Run
from tests.recorded.directories import write_manifest


@contextmanager
def watched(directory: Path, *hooks: tuple[Hook, ModuleType], level: str = "standard") -> Iterator[Callable[[], Run]]:
    """Gives what writes and loads the run; at the end every patch is taken back."""
    run = directory / "run"
    store.create(run)
    write_manifest(run, level=level)
    recorder = STATE.recorder = Recorder(run, level)

    def loaded() -> Run:
        recorder.flush()
        return load(run)

    try:
        for hook, module in hooks:
            hook.install(module)
        yield loaded
    finally:
        STATE.recorder = None
        unpatch()
        recorder.close()


def regions(run: Run) -> list[str]:
    """Names of the regions, in the order in which they began."""
    rows = run.regions[run.regions["begin"].argsort(kind="stable")]
    return [run.names[number] for number in rows["name"]]


def counted(recorder: Recorder | None, name: str) -> float:
    """The counter's value since the last boundary."""
    return recorder.counters.get(name, 0.0)
