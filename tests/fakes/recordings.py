"""Recording without running: a stand-in for `profiler.record.launch.record` that writes run directories at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiler.run import store
from profiler.run.model import RunInfo, RunSpec
from tests.recorded.directories import info, write_manifest, write_source
from tests.recorded.directories import steps as step_rows

MS = 1_000_000


def write_run(
    path: Path, *, step_ms: float = 10, steps: int = 20, level: str = "light", device: str = "host", **changes: Any
) -> RunInfo:
    """A run directory of `steps` steps of 100 tokens; `facts` and other fields of RunInfo may be given."""
    length = round(step_ms * MS)
    facts = {"device": device, "step": "chunk"}
    fields = {"run_id": path.name, "level": level, "exit_code": 0, "end": steps * length, "facts": facts, **changes}
    store.create(path)
    write_source(path, steps=step_rows(steps, length, tokens=100), facts={"device": device})
    write_manifest(path, **fields)
    return info(**{"state": "complete", **fields})


@dataclass
class FakeRecord:
    """Called as `record` is; each label has its own time of a step. `hooks` act at a run's folder, before it is made.

    A hook may raise, or return fields of RunInfo that differ.
    """

    step_ms: Mapping[str, float] = field(default_factory=dict)
    hooks: Mapping[str, Callable[[], dict[str, Any]]] = field(default_factory=dict)
    always: Mapping[str, Any] = field(default_factory=dict)
    """Fields of RunInfo of every run."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """By label: the device that a program states; host where it is not given."""
    specs: list[RunSpec] = field(default_factory=list)

    def __call__(self, spec: RunSpec) -> RunInfo:
        self.specs.append(spec)
        changes = {**self.always, **self.hooks.get(spec.out.name, dict)()}
        # each run a little slower than the one before, as no two runs are alike
        slower = 1 + len(self.specs) / 1000
        step_ms = self.step_ms.get(spec.label, 10) * slower
        device = self.devices.get(spec.label, "host")
        return write_run(
            spec.out, device=device, step_ms=step_ms, level=spec.level, label=spec.label, argv=spec.argv, **changes
        )
