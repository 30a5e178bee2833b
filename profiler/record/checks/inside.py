"""Whether our hooks come into a program: they find its steps, waits, syncs and copies."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from profiler.core.capability import NO, YES, Answer
from profiler.core.errors import ProfilerError
from profiler.record.checks import Place
from profiler.record.failures import last_line
from profiler.record.launch import record
from profiler.run import tables
from profiler.run.model import HOOKS, RunSpec

_SECONDS: Final = 10.0


class InsideCheck:
    """Really records a program, which imports a torch that is empty, and looks whether hooks reported themselves."""

    name = "inside"
    title = "steps, waits, syncs"
    order = 20
    needed = True
    patience_s = 20.0

    def look(self, place: Place) -> Answer:
        with TemporaryDirectory(prefix="profiler-doctor-") as folder:
            program = Path(folder) / "program.py"
            program.write_text("import torch\n", encoding="utf-8")
            program.with_name("torch.py").write_text("# stands for the real one: hooks come in when it is imported\n")
            spec = RunSpec(
                (place.python, str(program)),
                Path(folder) / "run",
                level="standard",
                collectors=(),
                timeout=_SECONDS,
                quiet=True,
            )
            try:
                info = record(spec)
            except ProfilerError as error:
                return Answer(NO, str(error))
            said = last_line(spec.out)
            came_in = any(line.startswith("torch") for line in _hooked(spec.out))
        if info.exit_code:
            return Answer(NO, f"a recorded Python exits with {info.exit_code}: {said or 'it said nothing'}")
        if not came_in:
            status = info.collector(HOOKS)
            reason = said or (status.reason if status else "") or "it does not heed PYTHONPATH"
            return Answer(NO, f"hooks do not come into {place.python}: {reason}")
        return Answer(YES, "hooks come into the program (not into a Python started with -I, -E or -S: leave these off)")


def _hooked(run: Path) -> list[str]:
    """What processes of the program said when hooks came in: `python PID`, then `torch PID`."""
    try:
        return (run / tables.HOOKED).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


PLUGIN = InsideCheck()
