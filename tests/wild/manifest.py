"""The cases of `make wild`, read from manifest.toml: a program, how it is started, and what is true of it."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from profiler.analyse.model import AFTER_OPTIMIZER, HOST_CATEGORIES

HERE: Final = Path(__file__).parent
SCRIPTS: Final = HERE / "scripts"
MANIFEST: Final = HERE / "manifest.toml"
CONDITIONS: Final = ("quiet", "busy", "quota")
RANK_CONDITION: Final = re.compile(r"slow-rank-(\d)")
STAGES: Final = ("evaluation", "roll-out", "compile", "optimizer", "gc")
"""Parts of a step that a verdict may name besides the host's categories."""
CATEGORIES: Final = frozenset({*HOST_CATEGORIES, *STAGES, AFTER_OPTIMIZER})


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TrueCause(_Strict):
    """One illness of a program."""

    category: tuple[str, ...]
    """The categories that name it truly; one of them is enough."""
    at: tuple[str, ...] = ()
    """Where it is: `file:function`, `file:12` or `file:12-20`; any one of them. Empty: anywhere."""
    share: tuple[float, float] | None = None
    """Its share of a step on a quiet machine, as an interval."""
    part: str = ""
    """The part of the script's own clocks that gives the share instead."""
    notice: tuple[str, ...] = ()
    """Codes of a notice, one of which must come with the cause (as `float64`); empty: none is needed."""
    under: tuple[str, ...] = CONDITIONS
    """The conditions under which it must be named."""

    @model_validator(mode="after")
    def _has_known_categories(self) -> TrueCause:
        unknown = set(self.category) - CATEGORIES
        if unknown or not self.category:
            raise ValueError(f"unknown categories: {sorted(unknown)}")
        return self


class Source(_Strict):
    """Where a public program comes from."""

    repository: str
    revision: str
    file: str


class Case(_Strict):
    """One program with its truth."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
    kind: Literal["script", "program", "package"]
    source: Source | None = None
    packages: tuple[str, ...] = ()
    """Packages that the program imports, by their names on a package index."""
    command: tuple[str, ...]
    """`{python}`, `{scripts}` (the folder of our scripts), `{source}` (the checkout of the repository), `{data}`."""
    env: Mapping[str, str] = Field(default_factory=lambda: {"OMP_NUM_THREADS": "1"})
    data: str = ""
    """Name of a generator of `data.py`, or empty. Its files also lie in the working directory and in ../data."""
    links: tuple[str, ...] = ()
    """Files of the checkout that the program expects in its working directory."""
    folders: tuple[str, ...] = ()
    """Folders that the program expects in its working directory."""
    ranks: int = 1
    steps: int | None = None
    """Updates that each rank makes; None: the program prints them, see `steps_pattern`."""
    steps_pattern: str = ""
    first_step: bool = False
    """Whether the first step is recorded too, because something marks its begin."""
    causes: tuple[TrueCause, ...] = ()
    """The largest first; none: the program is healthy, and no cause is to be named."""
    ordered: bool = True
    """Whether the first cause of a verdict must be the first of `causes`."""
    allowed: tuple[str, ...] = ()
    """Further categories that may be named, because they take time in truth."""
    late_rank: int | None = None
    """The rank for which the others wait; None: the ranks are alike."""
    must_say: tuple[str, ...] = ()
    """Regular expressions that the first screen must match under every condition."""
    never_say: tuple[str, ...] = ()
    """Regular expressions that the first screen must not match."""
    truth: str
    """How the truth was established."""
    timeout: float = 240.0
    repeats: int = 2
    """How many verdicts of a condition must be the same."""

    @model_validator(mode="after")
    def _is_complete(self) -> Case:
        if (self.kind == "program") != (self.source is not None):
            raise ValueError("a public program, and nothing else, has a source")
        if (self.steps is None) == (not self.steps_pattern):
            raise ValueError("give steps or steps_pattern")
        for pattern in (*self.must_say, *self.never_say, self.steps_pattern):
            re.compile(pattern)
        return self

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions under which it is tried; ranks that are alike are slowed in turn."""
        alike = self.ranks if self.ranks > 1 and self.late_rank is None else 0
        return (*CONDITIONS, *(f"slow-rank-{rank}" for rank in range(alike)))

    def argv(self, places: Mapping[str, Path]) -> list[str]:
        """The command; `places` says what the names in braces stand for."""
        return [word.format(**{name: str(path) for name, path in places.items()}) for word in self.command]


def read_manifest(path: Path = MANIFEST) -> tuple[Case, ...]:
    """All cases, in the order of the file; names are unique."""
    document: dict[str, Any] = tomllib.loads(path.read_text())
    cases = tuple(Case(**entry) for entry in document["case"])
    names = [case.name for case in cases]
    if len(set(names)) < len(names):
        raise ValueError(f"names are used twice: {sorted({name for name in names if names.count(name) > 1})}")
    return cases


def select(cases: Iterable[Case], names: Iterable[str]) -> list[Case]:
    """The cases with these names; `script`, `program` and `package` stand for all of a kind; none given: all."""
    wanted = list(names)
    chosen = [case for case in cases if not wanted or case.name in wanted or case.kind in wanted]
    unknown = set(wanted) - {case.name for case in chosen} - {case.kind for case in chosen}
    if unknown:
        sys.exit(f"no such case: {', '.join(sorted(unknown))}")
    return chosen
