"""The cases of the clinic: slow programs after public threads, each in a folder of its own with its truth.

`cases/NAME/case.toml` holds the fields of `Case`. Beside it lie the program and, where a library matters, a folder
`site-packages` with that library. `measured.json` is written by `python -m tests.clinic gain`. docs/clinic.md tells how
to add a case.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

CASES: Final = Path(__file__).parent / "cases"
KINDS: Final = (
    "no-step", "once", "growing", "library", "threads", "ranks", "cuda", "control", "python", "input",
)  # fmt: skip
Kind = Literal[
    "no-step", "once", "growing", "library", "threads", "ranks", "cuda", "control", "python", "input"
]  # fmt: skip
Recurrence = Literal["each step", "periodic", "growing", "once", "before the steps", "after the steps", "none"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Truth(_Strict):
    """What a right answer says about the program."""

    steps: int
    """Updates of the weights that each rank makes; 0: the program makes none."""
    lines: tuple[str, ...] = ()
    """Lines that the cure touches, as `FILE: TEXT OF THE LINE`; an answer names one of them. Empty: no line is."""
    owner: str = "user"
    """Whose code the time is spent in: `user`, or the name of a library."""
    recurrence: Recurrence = "each step"
    """When the cost occurs."""
    cause: tuple[str, ...] = ()
    """Regular expressions; a sentence that names the cause matches one of them."""
    advice: tuple[str, ...] = ()
    """Regular expressions; right advice matches one of them. Empty: any advice is as good as none."""
    harmful: tuple[str, ...] = ()
    """Regular expressions; harmful advice matches one of them."""
    says: str
    """The cause in one sentence, for the reader of a wrong verdict."""


class Counts(_Strict):
    """Exact counts of one step, before and after the cure."""

    syncs: tuple[int, int] | None = None
    """Times that the host waits for the device."""
    copies: tuple[int, int] | None = None
    """Copies between host and device."""
    launches: tuple[int, int] | None = None
    """Kernels that are launched."""
    all_reduces: tuple[int, int] | None = None
    """Collective operations that average gradients."""
    growth: tuple[int, int] | None = None
    """Bytes of tensors that a step adds to those of earlier steps."""


class Case(_Strict):
    """One program with its truth."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    source: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+#\d+$|^here$")]
    """The public thread or merged change, as `owner/repository#number`; `here`: an older program of this project."""
    figure: str = ""
    """What the thread measured, in our words."""
    kinds: tuple[Kind, ...] = Field(min_length=1)
    is_blind: bool = True
    """Whether its author had not read the rules."""
    command: tuple[str, ...]
    """What follows `python` in the folder of the case."""
    cured: tuple[str, ...] = ()
    """The same for the cured program; empty: it is `command` after `cure.patch`, or there is no cure."""
    cured_env: Mapping[str, str] = Field(default_factory=dict)
    """Variables that the cure sets; an empty text: it removes the variable."""
    prints: str = ""
    """The rule whose printed code is the cure: `cure.patch` or `cured_env` holds that text."""
    is_cured_by_print: bool = True
    """Whether that text cures the program; if it does not, `truth.says` tells why."""
    needs: tuple[str, ...] = ()
    """Modules that are not of the tests' environment; without one the case is skipped."""
    env: Mapping[str, str] = Field(default_factory=lambda: {"OMP_NUM_THREADS": "1"})
    ranks: int = 1
    stop_after: float = 0.0
    """Seconds after which the program is sent SIGTERM; 0: it ends by itself."""
    exit_code: int = 0
    is_cuda: bool = False
    """Whether it trains on a GPU: then it runs only with the virtual one."""
    counts: Counts = Counts()
    truth: Truth

    @model_validator(mode="after")
    def _is_complete(self) -> Case:
        for pattern in (*self.truth.cause, *self.truth.advice, *self.truth.harmful):
            re.compile(pattern)
        for place in self.truth.lines:
            self.line(place)
        if "control" not in self.kinds and not self.is_curable:
            raise ValueError(f"{self.name}: needs cured or cure.patch; only a control has no cure")
        return self

    @property
    def folder(self) -> Path:
        """Where the program lies."""
        return CASES / self.name

    @property
    def is_curable(self) -> bool:
        """Whether there is a cured program."""
        return bool(self.cured or self.cured_env) or (self.folder / "cure.patch").is_file()

    @property
    def is_counted(self) -> bool:
        """Whether the cure is measured by counts, and not by times."""
        return self.is_cuda or self.counts != Counts()

    def line(self, place: str) -> tuple[str, int]:
        """The file and the line number of one of `truth.lines`, whose text occurs once."""
        file, _, text = place.partition(": ")
        lines = (self.folder / file).read_text(encoding="utf-8").splitlines()
        numbers = [number for number, line in enumerate(lines, 1) if text in line]
        if len(numbers) != 1:
            raise ValueError(f"{self.name}: {text!r} stands {len(numbers)} times in {file}")
        return file, numbers[0]

    def added(self) -> str:
        """What `cure.patch` adds, without indentation, and `cured_env` as a shell has it; empty: there is neither."""
        path = self.folder / "cure.patch"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        added = [line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")]
        added += [f"unset {name}" for name, text in self.cured_env.items() if not text]
        if variables := [f"{name}={text}" for name, text in self.cured_env.items() if text]:
            added.append(" ".join([*variables, "python", *self.command]))
        return "\n".join(added)

    def missing(self) -> list[str]:
        """The modules that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]

    def measured(self) -> dict[str, Any]:
        """What `gain` wrote about the cure: its gain with pairs, counts or an error; empty: it was not measured."""
        path = self.folder / "measured.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def read_case(name: str) -> Case:
    """Read a case; ValueError tells what is wrong with it."""
    path = CASES / name / "case.toml"
    try:
        return Case(name=name, **tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ValueError(f"no such case: {name}") from None
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise ValueError(f"{path}: {error}") from None


def every_case() -> list[Case]:
    """All cases, by their names."""
    return [read_case(path.parent.name) for path in sorted(CASES.glob("*/case.toml"))]


def select(words: Iterable[str]) -> list[Case]:
    """The cases with these names or of these kinds; no word: all."""
    wanted = set(words)
    cases = every_case()
    unknown = wanted - {case.name for case in cases} - set(KINDS)
    if unknown:
        raise ValueError(f"no such case or kind: {', '.join(sorted(unknown))}")
    return [case for case in cases if not wanted or case.name in wanted or wanted & set(case.kinds)]
