"""Starts the programs of the clinic: as they are or cured, alone or below another command."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.clinic import data
from tests.clinic.case import Case

ROOT: Final = Path(__file__).parents[2]
CLOCK: Final = re.compile(r"trained in ([\d.]+) s, ([\d.]+) s of CPU")  # lines of two ranks may stand in one
"""What each program prints at its end about the part that a cure changes."""
TIMEOUT_S: Final = 400.0
_NOT_PLACED: Final = shutil.ignore_patterns("__pycache__", "case.toml", "measured*")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended."""

    exit_code: int
    output: str
    errors: str

    @property
    def seconds(self) -> tuple[float, float] | None:
        """Wall seconds and CPU seconds by the program's own clock; of ranks, the longest."""
        times = [(float(wall), float(cpu)) for wall, cpu in CLOCK.findall(self.output)]
        return max(times, default=None)


@contextmanager
def placed(case: Case, *, is_cured: bool = False) -> Iterator[Path]:
    """Copy the program into a temporary folder, with the patch applied if it is the cured one."""
    with tempfile.TemporaryDirectory(prefix=f"clinic-{case.folder.name}-") as name:
        folder = Path(name) / case.folder.name
        shutil.copytree(case.folder, folder, ignore=_NOT_PLACED)
        for each in case.folders:
            (folder / each).mkdir()
        for each in case.links:
            (folder / each).symlink_to(f"{case.checkout}/{each}")
        if case.data:
            made = Path(name) / "data"  # some programs read ../data
            data.make(case.data, made)
            for path in made.iterdir():
                (folder / path.name).symlink_to(path)
        patch = folder / "cure.patch"
        if is_cured and not case.cured and patch.is_file():
            subprocess.run(["git", "apply", str(patch)], cwd=folder, check=True)
        patch.unlink(missing_ok=True)
        yield folder


def arguments(case: Case, *, is_cured: bool = False) -> tuple[str, ...]:
    """The words after `python`, with the launcher of several ranks."""
    words = case.cured if is_cured and case.cured else case.command
    words = tuple(word.replace("{source}", str(case.checkout)) for word in words)
    if case.ranks == 1:
        return words
    return ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks), *words)


def environment(case: Case, folder: Path, *, is_cured: bool = False) -> dict[str, str]:
    """The variables of the program: its own, those of its cure, and its library as an installed one."""
    path = [str(folder / "site-packages")] if (folder / "site-packages").is_dir() else []
    path += [case.env["PYTHONPATH"].replace("{source}", str(case.checkout))] if "PYTHONPATH" in case.env else []
    variables = os.environ | dict(case.env) | {"PYTHONPATH": os.pathsep.join([*path, str(ROOT)])}
    changed = case.cured_env if is_cured else {}
    return {name: text for name, text in {**variables, **changed}.items() if text or name not in changed}


def start(case: Case, folder: Path, *, before: Sequence[str] = (), is_cured: bool = False) -> Ended:
    """Run the program to its end, below the command `before` (as `python -m profiler run --`)."""
    command = [*before, sys.executable, *arguments(case, is_cured=is_cured)]
    process = subprocess.Popen(
        command, cwd=folder, env=environment(case, folder, is_cured=is_cured), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=case.stop_after or TIMEOUT_S)
    except subprocess.TimeoutExpired:
        if case.stop_after:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(TIMEOUT_S)
        with suppress(ProcessLookupError):  # its workers and ranks too: those that a signal leaves hold its output open
            os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate(timeout=TIMEOUT_S)
    return Ended(process.returncode, output, errors)
