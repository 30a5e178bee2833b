"""Defines the interface of trainers that `compare` runs in several variants when it is given no runs or commands.

Trainers come from the entry-point group `training_profiler.trainers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from profiler.core.plugins import entry_points

if TYPE_CHECKING:
    from profiler.analyse.model import Extension
    from profiler.record.schedule import RecordedRuns, SideCommand, Task


@dataclass(frozen=True, slots=True)
class TrainerOption:
    """An option of `compare` that is passed on to a trainer."""

    help: str
    default: str = ""
    """Value in a pair; empty: the trainer's own default."""
    ladder_default: str = ""
    """Value in a ladder."""
    type: Callable[[str], Any] = str
    multiple: bool = False
    """Takes several values."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """The programs that a comparison records, and how."""

    programs: Sequence[SideCommand]
    """The sides of the comparison first."""
    tasks: Sequence[Task]
    sides: int = 2
    round_name: str = "pair"
    extensions: Callable[[Mapping[str, Any], RecordedRuns, bool], Mapping[str, Extension]] | None = None
    """Called with the `SideRuns` of programs by label, what was recorded, and whether --anyway was given."""


class Trainer(Protocol):
    """A program that can be run in two variants, and with each of its fixes."""

    name: str
    description: str
    module: str
    """The module that `python -m` runs."""
    is_default: bool
    marks_everything: bool
    """Its own marks record all that hooks would: hooks are not installed in its processes."""
    options: Mapping[str, TrainerOption]
    """Options by name, without dashes."""

    def pair(self, given: Mapping[str, str], rounds: int) -> Experiment:
        """The trainer before and after its fixes."""

    def counted_pair(self, given: Mapping[str, str]) -> tuple[Sequence[SideCommand], Mapping[str, str]]:
        """Both variants with a few steps on CUDA devices that do not exist, and what their environment needs."""

    def ladder(self, given: Mapping[str, str], rounds: int) -> Experiment:
        """The same two variants, and every fix by itself."""


def trainers() -> Mapping[str, Trainer]:
    """All trainers by name, the default first."""
    return {t.name: t for t in sorted(entry_points("trainers").values(), key=lambda t: (not t.is_default, t.name))}
