"""Reads and writes the trials of a run: what `try` measured about its findings, as a file in the run directory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from profiler.core import files
from profiler.core.errors import Notice, ProfilerError
from profiler.core.files import declared, fits, read_json

TRIALS_FILE: Final = "trials.json"
_SCHEMA: Final = "trials/1"


@dataclass(frozen=True, slots=True)
class SkippedLine:
    """A statement that was skipped, or at which a thread was stopped."""

    file: str
    line: int
    source: str
    """The first line of the statement, without indentation."""
    end: int = 0
    """The last line of the statement."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A program with and without the cause of a finding."""

    rule: str
    """Name of the finding's rule."""
    site: str = ""
    """The first line of the finding, as FILE:LINE."""
    predicted: float | None = None
    """The gain that was predicted before, as a factor; None: there was no prediction."""
    factor: float | None = None
    """How many times as fast steps are without the cause; None: it could not be measured, for `reason`."""
    low: float | None = None
    high: float | None = None
    """The ends of the 95% interval of `factor`."""
    skipped: tuple[SkippedLine, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that were changed."""
    reason: Notice | None = None
    pairs: int = 0
    """Pairs of blocks that were compared."""
    rounds: int = 0
    """Pairs of programs that were started."""
    seconds: float = 0.0
    """How long the trial took."""
    more: Notice | None = None
    """What more time would give; None: the gain is known well, or nothing was measured."""
    is_least: bool = False
    """Whether the gain may be larger: what is left out writes files, which a trial keeps in memory, not on a disk."""

    @property
    def is_most(self) -> bool:
        """Return whether the gain is a limit: the trial left out all work of a loader, and the program needs some."""
        return bool(self.settings.get("replay"))


class _Document(TypedDict):
    schema: Literal["trials/1"]
    trials: list[Trial]


def write_trials(run: Path, trials: Iterable[Trial]) -> None:
    """Replace the trials of a run directory.

    :raises ProfilerError: they cannot be written.
    """
    document = {"schema": _SCHEMA, "trials": [asdict(trial) for trial in trials]}
    try:
        files.write_text(run / TRIALS_FILE, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise ProfilerError(f"cannot write {run / TRIALS_FILE}: {error.strerror}") from error


def read_trials(run: Path) -> tuple[tuple[Trial, ...], tuple[Notice, ...]]:
    """Return the trials of a run directory, none where there are none, and what is wrong with their file."""
    file = run / TRIALS_FILE
    try:
        document = read_json(file)
    except FileNotFoundError:
        return (), ()
    except (ProfilerError, ValueError):
        document = None
    if not fits(document, _Document):
        return (), (Notice("trials-damaged", {"file": TRIALS_FILE}),)
    return tuple(map(_trial, document["trials"])), ()


def _trial(value: Mapping[str, Any]) -> Trial:
    fields = {name: each for name, each in value.items() if name in declared(Trial)}
    fields["skipped"] = tuple(SkippedLine(**each) for each in fields.get("skipped", ()))
    for name in ("reason", "more"):
        notice = fields.get(name)
        fields[name] = Notice(notice["code"], notice["values"]) if notice else None
    return Trial(**fields)
