"""The cases of the clinic: slow programs after public threads, each in a folder of its own with its truth.

`cases/NAME/case.toml` holds the fields of `Case`. Beside it lie the program and, where a library matters, a folder
`site-packages` with that library. `measured.json` is written by `python -m tests.clinic gain`. A table
`[variants.VARIANT]` makes the folder a family: its case NAME/VARIANT has the fields of the table instead of the
family's. docs/clinic.md tells how to add a case.
"""

from __future__ import annotations

import ast
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

CASES: Final = Path(__file__).parent / "cases"
CHECKOUTS: Final = Path(os.environ.get("CLINIC_DIR", Path.home() / ".cache" / "training-profiler-clinic"))
"""A folder `owner+name` for each repository of which a program is tried."""
Kind = Literal[
    "no-step", "once", "growing", "library", "threads", "ranks", "cuda", "control", "python", "input", "style"
]  # fmt: skip
KINDS: Final = get_args(Kind)
Recurrence = Literal["each step", "periodic", "growing", "once", "before the steps", "after the steps", "none"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Part(_Strict):
    """One illness by the part of a step that it takes."""

    category: tuple[str, ...] = Field(min_length=1)
    """The categories of a verdict that name it truly; one of them is enough."""
    at: tuple[str, ...] = ()
    """Where it is: `file:function`; any one of them. Empty: anywhere."""
    share: tuple[float, float] | None = None
    """Its share of a step on a quiet machine, as an interval."""
    part: str = ""
    """The part of the program's own clocks that gives the share instead."""
    notice: tuple[str, ...] = ()
    """Codes of a notice, one of which must come with the cause (as `float64`); empty: none is needed."""
    under: tuple[str, ...] = ("quiet", "busy", "quota")
    """The conditions under which it must be named."""


class Parts(_Strict):
    """The parts of a step that a verdict must name; it may name no others."""

    causes: tuple[Part, ...] = ()
    """The largest first; none: the program is healthy."""
    is_ordered: bool = True
    """Whether the first cause of a verdict must be the first of `causes`."""
    allowed: tuple[str, ...] = ()
    """Further categories that may be named, because they take time in truth."""
    late_rank: int | None = None
    """The rank for which the others wait; None: the ranks are alike."""
    must_say: tuple[str, ...] = ()
    """Regular expressions that the first screen must match."""
    never_say: tuple[str, ...] = ()
    """Regular expressions that the first screen must not match."""


class Style(_Strict):
    """What the recording of a program must contain, beside all that the program does without a recorder."""

    source: str
    """Part of the description of its steps."""
    recorded: int
    """Steps of each process; nothing marks the begin of the first step of most programs."""
    regions: tuple[str, ...] = ()
    """Names of regions that the run must have."""


class Truth(_Strict):
    """What a right answer says about the program."""

    steps: int | str
    """Updates of the weights that each process makes; 0: the program makes none. A text: the regular expression that
    finds their number in the program's output, where each run makes another one."""
    lines: tuple[str, ...] = ()
    """Lines that the cure touches, as `FILE: TEXT OF THE LINE`; an answer names one of them. Empty: no line is."""
    owner: str = "user"
    """Whose code the time is spent in: `user`, or the name of a library, which may be `torch`."""
    recurrence: Recurrence = "each step"
    """When the cost occurs."""
    cause: tuple[str, ...] = ()
    """Regular expressions; the title or the evidence of an entry that names the cause matches one of them."""
    advice: tuple[str, ...] = ()
    """Regular expressions; right advice matches one of them. Empty: any advice is as good as none."""
    harmful: tuple[str, ...] = ()
    """Regular expressions; harmful advice matches one of them."""
    rules: tuple[tuple[str, ...], ...] | None = None
    """For each illness the rules that name it. One illness: such a rule must come first. Several: each must be among as
    many first entries. Empty: none may lead. They decide the verdict instead of cause, line and advice."""
    parts: Parts | None = None
    """What decides the verdict instead, where a verdict must give each cause its share."""
    style: Style | None = None
    """What decides the verdict of a case of the kind `style`."""
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
    """Collective operations that average gradients. They tell why the cure gains; no report counts them."""
    growth: tuple[int, int] | None = None
    """Bytes of tensors that a step adds to those of earlier steps."""


class Case(_Strict):
    """One program with its truth."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+(/[a-z0-9_-]+)?$")]
    """Its folder, and the variant of a family after a slash."""
    source: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+(#\d+|@[0-9a-f]{40})$|^here$")]
    """The public thread or merged change, as `owner/repository#number`; `here`: an older program of this project;
    `owner/repository@revision`: the program itself is in a checkout of that revision, see `checkout`."""
    figure: str = ""
    """What the thread measured, in our words."""
    kinds: tuple[Kind, ...] = Field(min_length=1)
    is_blind: bool = True
    """Whether its author had not read the rules."""
    command: tuple[str, ...]
    """What follows `python` in the folder of the case; `{source}` is the checkout."""
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
    data: str = ""
    """Name of a generator of `data.py` whose files lie in the program's folder."""
    links: tuple[str, ...] = ()
    """Files of the checkout that the program expects in its folder."""
    folders: tuple[str, ...] = ()
    """Folders that the program expects in its folder."""
    ranks: int = 1
    processes: int = 0
    """Processes that take steps; 0: as many as `ranks`."""
    level: str = "standard"
    """The level of recording."""
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
        if (self.truth.style is not None) != ("style" in self.kinds):
            raise ValueError(f"{self.name}: truth.style belongs to the kind style")
        is_judged_by_cause = not (self.truth.parts or self.truth.style or "control" in self.kinds)
        if is_judged_by_cause and not self.is_curable:
            raise ValueError(f"{self.name}: needs cured or cure.patch; only a control has no cure")
        return self

    @property
    def is_others(self) -> bool:
        """Whether other people had this illness, and the author of the case had not read the rules."""
        return self.is_blind and self.source != "here"

    @property
    def folder(self) -> Path:
        """Where the program lies."""
        return CASES / self.name.partition("/")[0]

    @property
    def measured_path(self) -> Path:
        """Where the measured gain of the cure is kept."""
        variant = self.name.partition("/")[2]
        return self.folder / "measured" / f"{variant}.json" if variant else self.folder / "measured.json"

    @property
    def checkout(self) -> Path | None:
        """The checkout of the program's repository in the folder CLINIC_DIR; None: the program lies here."""
        repository, _, revision = self.source.partition("@")
        return CHECKOUTS / repository.replace("/", "+") if revision else None

    @property
    def is_curable(self) -> bool:
        """Whether there is a cured program."""
        return bool(self.cured or self.cured_env) or (self.folder / "cure.patch").is_file()

    @property
    def is_counted(self) -> bool:
        """Whether the cure is measured by counts, and not by times."""
        return self.is_cuda or self.counts.growth is not None

    @property
    def has_gain(self) -> bool:
        """Whether the times of the program and of the cured one compare: it ends by itself and not by an error."""
        return self.is_curable and not (self.is_cuda or self.stop_after or self.exit_code)

    def line(self, place: str) -> tuple[str, int]:
        """The file and the line number of one of `truth.lines`, whose text occurs once."""
        file, _, text = place.partition(": ")
        lines = (self.folder / file).read_text(encoding="utf-8").splitlines()
        numbers = [number for number, line in enumerate(lines, 1) if text in line]
        if len(numbers) != 1:
            raise ValueError(f"{self.name}: {text!r} stands {len(numbers)} times in {file}")
        return file, numbers[0]

    def statement(self, place: str) -> Iterator[tuple[str, int]]:
        """The file and the lines of the statement that holds such a line: a call may have its arguments on several."""
        file, line = self.line(place)
        yield file, line
        for node in ast.walk(ast.parse((self.folder / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.stmt) and not hasattr(node, "body"):
                lines = range(node.lineno, (node.end_lineno or 0) + 1)
                yield from ((file, number) for number in lines if line in lines)

    def added(self) -> str:
        """What `cure.patch` adds, without indentation, and `cured_env` as a shell has it; empty: there is neither."""
        path = self.folder / "cure.patch"
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        added = [line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")]
        added += [f"unset {name}" for name, text in self.cured_env.items() if not text]
        if variables := [f"{name}={text}" for name, text in self.cured_env.items() if text]:
            added.append(" ".join([*variables, "python", *self.command]))
        return "\n".join(added)

    def missing(self) -> str:
        """Why the case cannot run here; empty: it can."""
        if self.checkout and not self.checkout.is_dir():
            return f"there is no checkout {self.checkout} of {self.source}"
        modules = [name for name in self.needs if find_spec(name) is None]
        return f"{', '.join(modules)} is not installed" if modules else ""

    def measured(self) -> dict[str, Any]:
        """What `gain` wrote about the cure: its gain with pairs, counts or an error; empty: it was not measured."""
        path = self.measured_path
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def read_cases(folder: str) -> list[Case]:
    """Read the case of a folder, or the cases of its family; ValueError tells what is wrong with it."""
    path = CASES / folder / "case.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        variants: dict[str, dict[str, Any]] = table.pop("variants", {"": {}})
        return [
            Case(
                name=f"{folder}/{name}" if name else folder,
                **table | fields | {"truth": table.get("truth", {}) | fields.get("truth", {})},
            )
            for name, fields in variants.items()
        ]
    except FileNotFoundError:
        raise ValueError(f"no such case: {folder}") from None
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise ValueError(f"{path}: {error}") from None


def read_case(name: str) -> Case:
    """Read one case; ValueError tells what is wrong with it."""
    found = [case for case in read_cases(name.partition("/")[0]) if case.name == name]
    if not found:
        raise ValueError(f"no such case: {name}")
    return found[0]


def every_case() -> list[Case]:
    """All cases, by their names."""
    return [case for path in sorted(CASES.glob("*/case.toml")) for case in read_cases(path.parent.name)]


def select(words: Iterable[str]) -> list[Case]:
    """The cases with these names, of these families or of these kinds; no word: all."""
    wanted = set(words)
    cases = every_case()
    labels = {case.name: {case.name, case.folder.name, *case.kinds} for case in cases}
    unknown = wanted.difference(KINDS, *labels.values())
    if unknown:
        raise ValueError(f"no such case or kind: {', '.join(sorted(unknown))}")
    return [case for case in cases if not wanted or wanted & labels[case.name]]
