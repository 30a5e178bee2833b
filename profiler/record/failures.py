"""A recorded program that failed: what it said last, which kind of error that is, and what is taken back."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from profiler.core.errors import Exit, ProfilerError
from profiler.run.store import OUTPUT_LOG

_TAIL_BYTES = 4096
_LINE = 300
"""Characters of a target's last line that are quoted."""
_PREFIX = "error: "
"""What a program of ours, as this one, begins the line of an error with."""


def bad_input(path: Path) -> ProfilerError:
    """The last line of a program of ours that refused its options, as if it were said here."""
    return ProfilerError(last_line(path).removeprefix(_PREFIX) or "it printed nothing")


def failed(label: str, exit_code: int | None, path: Path) -> ProfilerError:
    """How the program ended, its last line, and where the rest is."""
    said = f"{_how(exit_code)}: {last_line(path) or 'it printed nothing'}"
    return ProfilerError(f"{label} {said} (run and output are kept in {path})", Exit.TARGET_FAILED)


def reason(exit_code: int | None, path: Path) -> str:
    """Why there is no row of this program: its own last line."""
    return last_line(path).removeprefix(_PREFIX) or f"it {_how(exit_code)} and printed nothing"


def _how(exit_code: int | None) -> str:
    return f"was ended by signal {-exit_code}" if exit_code and exit_code < 0 else f"exited with {exit_code}"


def last_line(path: Path) -> str:
    """Of the output of the run in `path`; empty where there is none."""
    log = path / OUTPUT_LOG
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    last = lines[-1] if lines else ""
    shown = "".join(char if char.isprintable() else "\ufffd" for char in last)  # it must not command the terminal
    return shown if len(shown) <= _LINE else shown[:_LINE] + "..."


def missing_folders(out: Path) -> tuple[Path, ...]:
    """`out` and those above it that are not there yet, the innermost first."""
    folders = (out.absolute(), *out.absolute().parents)
    return tuple(folder for folder in folders if not folder.exists())


def take_back(runs: Sequence[Path], folders: Sequence[Path]) -> None:
    """Remove run directories, then each of `folders` that is empty without them."""
    for run in runs:
        shutil.rmtree(run, ignore_errors=True)
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:  # something else lies in it by now
            return
