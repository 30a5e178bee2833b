"""How the gate by line judges honest changes of three training programs, and faults that are planted into them.

python -m tests.benchmarks.gate_refactorings [--all] [WORD]: `--all` with the changes that were held out, WORD: only
those whose name has it. Everything is counted within this process, as by `check --count`.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
import torch

from profiler.agent.hooks import exact, optimizers, stages
from profiler.check.counters import baseline
from profiler.check.counters.compare import compare, overall
from profiler.check.counters.counted import counted
from profiler.check.diff import file_changes
from profiler.check.model import FAIL, Counted, CounterLine, GateResult, Limits
from profiler.check.modes.finish import conclude
from profiler.check.outputs.first_screen import first_screen
from profiler.check.places import failing, find_rises
from profiler.run.model import Run
from profiler.run.tables import ENV_COUNT
from tests.benchmarks.planted_faults import FAULTS
from tests.benchmarks.refactorings import GPT, HONEST, RESNET, SCRIPTS, UNET, Edit
from tests.fakes.watched import watched

PROGRAMS: Final = (GPT, RESNET, UNET)
_HOOKS: Final = (
    (exact.COUNTS, torch),
    (optimizers.PLUGIN, import_module("torch.optim.optimizer")),
    (optimizers.PLUGIN, import_module("torch.amp.grad_scaler")),
    (stages.BACKWARD, torch.autograd),
    (stages.STAGES, torch.nn.modules.module),
)


def count(program: str, files: Mapping[str, str], folder: Path) -> tuple[Counted, Run]:
    """Run a program in this process with the hooks of `run --count`, and count its steps after the first one."""
    for name, text in files.items():
        (folder / name).write_text(text)
    before, threads = set(sys.modules), torch.get_num_threads()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as run, pytest.MonkeyPatch.context() as patch, chdir(folder):
        patch.setenv(ENV_COUNT, "1")
        patch.syspath_prepend(str(folder))
        with watched(Path(run), *_HOOKS) as loaded:
            path = folder / program
            exec(compile(files[program], str(path), "exec"), {"__name__": "__main__", "__file__": str(path)})
            recorded = loaded()
            result = counted(recorded, None, folder=str(folder))
    torch.set_num_threads(threads)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
    return result, recorded


@dataclass(frozen=True, slots=True)
class Judgement:
    """How the gate judged a change."""

    edit: Edit
    state: str
    result: GateResult
    is_named: bool
    """Whether the first line that it names is one that the change wrote."""
    is_counted: bool
    """Whether the first line at which it tells a rise is one that the change wrote."""

    @property
    def lines(self) -> tuple[CounterLine, ...]:
        return self.result.counters


class Gate:
    """The baseline of a program, as a file keeps it."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder
        text = (SCRIPTS / program).read_text()
        (folder / program).write_text(text)
        for words in (
            ("init", "-q"),
            ("add", "."),
            ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"),
        ):
            subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
        processes, run = count(program, {program: text}, folder)
        section = baseline.section_from([processes], run, f"python {program}", folder=str(folder))
        path = folder / "counters.json"
        baseline.write(path, section)
        self.section = baseline.read(path)

    def judge(self, edit: Edit) -> Judgement:
        """The verdict on a change."""
        files = {self.program: edit.text(), **edit.files}
        variant, _ = count(self.program, files, self.folder)
        changes = file_changes(self.section.sources, baseline.counted_files([variant]), str(self.folder))
        lines = compare(baseline.as_processes(self.section), [variant, variant], Limits(), changes)
        for name in edit.files:
            (self.folder / name).unlink()
        hunks = tuple(hunk for change in changes for hunk in change.hunks) if overall(lines) == FAIL else ()
        result = GateResult(counters=lines, counters_state=overall(lines), mode="baseline", hunks=hunks)
        result = conclude(replace(result, baseline_file="counters.json"))
        written = _written(self.program, files)
        rises = find_rises(failing(result), hunks)
        places = [place.path for place in first_screen(result, ()).places]
        first = rises[0].changes[0] if rises else None
        is_counted = first is not None and f"{first.file}:{first.line}" in written
        return Judgement(edit, result.state, result, bool(places) and places[0] in written, is_counted)


def _written(program: str, files: Mapping[str, str]) -> set[str]:
    """The lines that a change wrote."""
    written = {name: set(range(1, text.count("\n") + 2)) for name, text in files.items()}
    old, new = (SCRIPTS / program).read_text().splitlines(), files[program].splitlines()
    same = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    for block in same:
        written[program] -= set(range(block.b + 1, block.b + block.size + 1))
    return {f"{name}:{line}" for name, lines in written.items() for line in lines}


def judged(edits: Sequence[Edit]) -> Iterator[Judgement]:
    """The verdict on each change."""
    for program in PROGRAMS:
        own = [edit for edit in edits if edit.program == program]
        if own:
            with tempfile.TemporaryDirectory() as folder:
                gate = Gate(program, Path(os.path.realpath(folder)))
                yield from map(gate.judge, own)


def table(judgements: Sequence[Judgement]) -> str:
    """A line for each change, with what failed where."""
    rows = []
    for each in judgements:
        failed = [line for line in each.lines if line.state == FAIL]
        held = "held out" if each.edit.held_out else ""
        what = each.result.sentence if failed else ""
        named = ("named " if each.is_named else "ELSEWHERE ") * bool(failed)
        rows.append(f"{each.state:12} {each.edit.program:16} {each.edit.name:58} {held:9} {named}{what}")
    return "\n".join(rows)


if __name__ == "__main__":
    words = sys.argv[1:]
    everything = "--all" in words
    wanted = "".join(word for word in words if word != "--all")
    for title, edits in (("honest changes", HONEST), ("planted faults", FAULTS)):
        chosen = [edit for edit in edits if (everything or not edit.held_out) and wanted in edit.name]
        results = list(judged(chosen))
        print(f"\n{title}\n{table(results)}")
        failed = [each for each in results if each.state == FAIL]
        print(
            f"FAIL: {len(failed)} of {len(results)}; first at a line of the change: {sum(e.is_named for e in failed)}; "
            f"first rise there: {sum(e.is_counted for e in failed)}"
        )
