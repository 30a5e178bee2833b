"""Settings of a check: the command line over `[tool.profiler.check]` of pyproject.toml over the defaults."""

from __future__ import annotations

import argparse
import math
import re
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from profiler.check.counters.compare import suggestion
from profiler.check.model import PATIENCE_S, Budget, GateResult, Limit, Limits
from profiler.core.errors import Notice, ProfilerError
from profiler.core.files import read_bytes
from profiler.core.machine import DEFAULT_CARD, virtual_devices
from profiler.core.masking import Privacy
from profiler.core.units import shorten

FILE: Final = "pyproject.toml"
TABLE: Final = "tool.profiler.check"
PROCESSES: Final = 2
"""Counted by default: what differs between them is not constant."""
_UNITS: Final = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_UNIT: Final = re.compile(r"([0-9.e+]+)\s*([kmgt]?b)", re.IGNORECASE)
_OPTIONS: Final = {"baseline": "--baseline", "links": "--link"}
"""Keys that have an option of their own."""
_WARN: Final = "warn:"
"""Before an amount of which more is only a warning."""
_MAX_SHOWN: Final = 60
"""Characters of a value that an error quotes."""


# ---------------------------------------------------------------- values


def share(value: object) -> float:
    """Parse a share: '5%', '0.05' and 0.05 are 0.05.

    :raises ValueError: it is neither, or negative, or not below 1.
    """
    limit = parse_limit(value)
    result = limit.relative or limit.absolute
    if not result < 1:
        raise ValueError(f"{_shorten(value)} is not a share below 1, such as 5% or 0.05")
    return result


def _detectable(value: object) -> float:
    result = share(value)
    if not result:
        raise ValueError(f"{_shorten(value)} cannot be detected by any number of rounds; use a share such as 5%")
    return result


def parse_limit(value: object) -> Limit:
    """Parse a limit: 1, 0.5, '1%', or a table with absolute and relative.

    :raises ValueError: it is none of these.
    """
    if isinstance(value, Mapping):
        if unknown := [str(key) for key in value if key not in {"absolute", "relative"}]:
            raise ValueError(f"{_shorten(unknown[0])} is not part of a limit: absolute and relative are")
        return Limit(_number(value.get("absolute", 0.0)), share(value.get("relative", 0.0)))
    if isinstance(value, str) and value.strip().endswith("%"):
        return Limit(relative=_number(value.strip()[:-1]) / 100)
    return Limit(absolute=_number(value))


def parse_budget(value: object) -> Budget:
    """Parse a budget: 2000, '2 GB', 'warn:2 GB', or a table with warn and fail.

    :raises ValueError: it is none of these.
    """
    if isinstance(value, Mapping):
        if unknown := [str(key) for key in value if key not in {"warn", "fail"}]:
            raise ValueError(f"{_shorten(unknown[0])} is not part of a budget: warn and fail are")
        budget = Budget(**{str(key): _amount(amount) for key, amount in value.items()})
        if budget == Budget():
            raise ValueError("an empty table limits nothing: name warn, fail or both")
        return budget
    if isinstance(value, str) and value.strip().startswith(_WARN):
        return Budget(warn=_amount(value.strip().removeprefix(_WARN)))
    return Budget(fail=_amount(value))


def _amount(value: object) -> float:
    """Return a number, with a unit of bytes or none."""
    unit = _UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    number = _finite(unit[1]) * _UNITS[unit[2].upper()] if unit else _finite(value)
    if not number >= 0:
        raise ValueError(f"{_shorten(value)} is no number of 0 or more, alone or with a unit: B, kB, MB, GB or TB")
    return number


def _number(value: object) -> float:
    """Return a finite number of 0 or more, or refuse it."""
    number = _finite(value)
    if not number >= 0:
        raise ValueError(f"{_shorten(value)} is neither a number of 0 or more nor a share such as 5%")
    return number


def _finite(value: object) -> float:
    """Return a finite number; NaN for anything else."""
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float | str) else float(value)
    except (ValueError, OverflowError):  # no number; hundreds of digits
        number = math.nan
    return number if math.isfinite(number) else math.nan


def _shorten(value: object) -> str:
    return shorten(repr(value), _MAX_SHOWN)


Text = Annotated[StrictStr, Field(min_length=1)]
Count = Annotated[StrictInt, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]


class SettingsTable(BaseModel):
    """All keys of `[tool.profiler.check]`."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    detect: Annotated[float, BeforeValidator(_detectable)] = Limits().detect
    """The slow-down that is caught, as a share."""
    limits: dict[str, Annotated[Limit, BeforeValidator(parse_limit)]] = {}
    """Counter -> how far it may rise per step; '*' holds for all others."""
    ignore: list[Text] = []
    """Counters that cannot fail the check."""
    budgets: dict[str, Annotated[Budget, BeforeValidator(parse_budget)]] = {}
    """Counter -> how much of it there may be, whatever the base has."""
    inconclusive: Literal["fail", "pass"] = "fail"
    """The effect of a result that does not decide on the exit code."""
    max_rounds: Count = Limits().max_rounds
    max_seconds: Seconds | None = None
    patience: Seconds = PATIENCE_S
    """How long a program may take to its first step."""
    baseline: Text | None = None
    """The file of counters; in pyproject.toml relative to it."""
    steps: Count | None = None
    """Counted in each process; None: as many as the baseline has, or the default."""
    warmup: Annotated[StrictInt, Field(ge=0)] | None = None
    """Steps before them."""
    processes: Count | None = None
    """Counted on each side."""
    links: list[Text] = []
    """Files and folders outside git that another revision needs too."""
    environment: Literal["auto", "same"] = "auto"
    """That of another revision: its own where its requirements differ, or this one."""
    explain: bool = True
    """Whether a FAIL of speed is followed by a recording of where the time of both sides goes."""
    history: Text | None = None
    """The file to which each result is appended; in pyproject.toml relative to it."""
    source: bool = True
    """Whether recorded runs have the text of source lines."""
    shared: bool = False
    """Whether the umask decides who may read the runs; otherwise only their owner may."""
    max_size: Annotated[float, BeforeValidator(_amount)] | None = None
    """The most bytes that are read of a file, unpacked."""
    command: Text | None = None
    """What is checked where the command line has no command: words as a shell splits them, but no shell runs them."""
    count: bool = False
    """Whether operators and memory are counted."""
    virtual_cuda: Count | None = None
    """Number of virtual CUDA devices that the command sees."""
    configurations: dict[Annotated[StrictStr, Field(pattern=r"^\w[\w-]*$")], dict[str, Any]] = {}
    """Name -> keys of this table that hold for one configuration. All are checked where there is no command."""

    @property
    def gate_limits(self) -> Limits:
        return Limits(
            self.detect,
            self.limits,
            tuple(self.ignore),
            self.budgets,
            inconclusive=self.inconclusive,
            max_rounds=self.max_rounds,
            max_seconds=self.max_seconds,
        )


FoundTable = tuple[Mapping[str, Any], Path | None]
"""The table of a pyproject.toml as it is written there, and that file; None: there is none."""


def find_table() -> FoundTable:
    """Read the table of the nearest pyproject.toml that has one, from the working directory upward.

    :raises ProfilerError: a file that cannot be read.
    """
    here = Path.cwd()
    files = (folder / FILE for folder in (here, *here.parents) if (folder / FILE).is_file())
    return next(((table, file) for file in files if (table := _load(file))), ({}, None))


def read_table(
    options: Mapping[str, object], configuration: str = "", *, found: FoundTable | None = None
) -> tuple[SettingsTable, Path | None]:
    """Return the settings that hold here, and the file that has them.

    :param options: key -> value of the command line. Its limits are added to those of the file, counter by counter, and
        its paths are relative to the working directory.
    :param configuration: a name in `configurations`; its keys replace the keys of the table; empty: none.
    :param found: what `find_table` returned; None: it is called.
    :raises ProfilerError: a file that cannot be read, an unknown key, an invalid value.
    """
    table, file = found or find_table()
    name = f"{TABLE}.configurations.{configuration}" if configuration else TABLE
    if configuration:
        table = _configured(table, configuration)
    from_file = _validate(table, lambda key: f"{file}: [{name}] {key}")
    from_options = _validate(options, lambda key: _OPTIONS.get(key, f"--set {key}".rstrip()))
    if from_options.configurations:
        raise ProfilerError(f"--set configurations: they are a table of {FILE}, [{TABLE}.configurations.NAME]")
    values = {name: getattr(from_file, name) for name in from_file.model_fields_set}
    for name in ("baseline", "history"):
        if file and values.get(name):
            values[name] = str(file.parent / values[name])
    values |= {name: getattr(from_options, name) for name in from_options.model_fields_set}
    values["limits"] = {**from_file.limits, **from_options.limits}
    values["budgets"] = _merged_budgets(from_file.budgets, from_options.budgets)
    return SettingsTable.model_construct(**values), file


def _configured(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the table with the keys of one of its configurations; limits and budgets are replaced counter by
    counter."""
    own = table["configurations"][name]
    merged = {**{key: value for key, value in table.items() if key != "configurations"}, **own}
    for key in ("limits", "budgets"):
        if isinstance(table.get(key), Mapping) and isinstance(own.get(key), Mapping):
            merged[key] = {**table[key], **own[key]}
    if "configurations" in own:
        raise ProfilerError(f"[{TABLE}.configurations.{name}]: a configuration has no configurations of its own")
    if not str(own.get("command", "")).strip():
        raise ProfilerError(f'[{TABLE}.configurations.{name}] needs a command, as in command = "python train.py"')
    return merged


def _merged_budgets(file: Mapping[str, Budget], options: Mapping[str, Budget]) -> dict[str, Budget]:
    """Return the budgets of the file, of which the command line replaces warnings and limits one by one."""
    merged = dict(file)
    for name, budget in options.items():
        old = merged.get(name, Budget())
        warn, fail = (
            new if new is not None else former for new, former in ((budget.warn, old.warn), (budget.fail, old.fail))
        )
        merged[name] = Budget(warn, fail)
    for name, budget in merged.items():
        if budget.warn is not None and budget.fail is not None and budget.warn >= budget.fail:
            raise ProfilerError(
                f"the budget for {name} warns above {budget.warn:g} and fails above {budget.fail:g}, so it would never "
                "warn: the amount that warns must be smaller"
            )
    return merged


def _validate(table: Mapping[str, object], location: Callable[[str], str]) -> SettingsTable:
    """Validate a table. A ProfilerError tells its first fault, in one line."""
    try:
        return SettingsTable.model_validate(table)
    except ValidationError as error:
        fault = error.errors()[0]
    key, *inner = map(str, fault["loc"])
    if fault["type"] == "extra_forbidden":
        hint = suggestion(key, SettingsTable.model_fields)
        raise ProfilerError(f"{location('').rstrip()} has no key {key if key.isprintable() else repr(key)}{hint}")
    own = fault["type"] == "value_error"
    message = str(fault["ctx"]["error"]) if own else f"{fault['msg']} ({_shorten(fault['input'])})"
    raise ProfilerError(": ".join((location(key), *inner, message)))


def _load(file: Path) -> Mapping[str, object]:
    """Return the table of a file; empty where it has none."""
    try:
        value: Any = tomllib.loads(read_bytes(file).decode("utf-8"))
    except FileNotFoundError as error:
        raise ProfilerError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, endless numbers and brackets
        raise ProfilerError(f"{file} is not TOML: {' '.join(str(error).split())}") from None
    parts = TABLE.split(".")
    for depth, part in enumerate(parts, 1):
        value = value.get(part, {})
        if not isinstance(value, dict):
            raise ProfilerError(f"{file}: {'.'.join(parts[:depth])} is not a table")
    table: dict[str, object] = value
    return table


# ---------------------------------------------------------------- the command line


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a check needs to know: the table, and what the options and the mode make of it."""

    table: SettingsTable
    out: Path
    baseline: Path | None = None
    update: bool = False
    reason: str = ""
    steps: int | None = None
    virtual_cuda: str = ""
    """Number and name of the virtual CUDA devices that the program sees, as in `1:h100`; empty: none."""
    count: bool = False
    """Whether operators and memory are counted."""
    notes: tuple[Notice, ...] = ()
    started: float = field(default_factory=time.monotonic)
    results: list[GateResult] = field(default_factory=list)
    """What was found with these settings, for a report of several configurations."""

    @property
    def limits(self) -> Limits:
        return self.table.gate_limits

    @property
    def privacy(self) -> Privacy:
        """Return what the recorded runs keep, and who may read them."""
        return Privacy(source=self.table.source, shared=self.table.shared)

    @property
    def processes(self) -> int:
        """Return processes to count: one where counts are exact, because they are the same in all of most programs."""
        return self.table.processes or (1 if self.count and not self.update else PROCESSES)

    @property
    def options(self) -> str:
        """Return the options by which the program is counted, as the command line has them."""
        if not self.virtual_cuda:
            return "--count" if self.count else ""
        number = self.virtual_cuda.partition(":")[0]
        return "--virtual-cuda" if number == "1" else f"--virtual-cuda {number}"


def settings_of(table: SettingsTable, file: Path | None, args: argparse.Namespace, *, uses_baseline: bool) -> Settings:
    """Make the settings of a check from its table and its options.

    :param file: the pyproject.toml from which `table` is.
    :param uses_baseline: whether the mode of the check compares to a baseline that it names.

    :raises ProfilerError: a directory that is not empty, or virtual devices that cannot be.
    """
    baseline = Path(table.baseline) if table.baseline else None
    notes: tuple[Notice, ...] = ()
    if baseline is not None and not uses_baseline:
        notes, baseline = (Notice("baseline-not-used", {"baseline": str(baseline), "file": str(file)}),), None
    return Settings(
        table,
        out=output_directory(args.out),
        baseline=baseline,
        update=args.update is not None,
        reason=args.update or "",
        steps=table.steps,
        virtual_cuda=virtual_devices(args.virtual_cuda, DEFAULT_CARD),
        count=bool(args.count or args.virtual_cuda),
        notes=notes,
    )


def options_of(args: argparse.Namespace) -> dict[str, object]:
    """Return key -> value of the command line, as `read_table` takes them.

    :raises ProfilerError: --set has no key or no value.
    """
    options: dict[str, Any] = {}
    for text in args.set or ():
        name, sign, value = text.partition("=")
        key, dot, inner = name.partition(".")
        if not (key and sign and value and bool(dot) == bool(inner)):
            raise ProfilerError(f"--set {text}: name a key and its value, as in max_rounds=10 or limits.syncs=1")
        if inner:
            table = options.setdefault(key, {})
            options[key] = {**(table if isinstance(table, dict) else {}), inner: _value(value)}
        else:
            options[key] = _value(value)
    given = {"baseline": args.baseline and str(args.baseline), "links": args.link}
    return options | {key: value for key, value in given.items() if value is not None}


def _value(text: str) -> object:
    """Return a value of TOML, or the text itself where it is none, as in `5%`."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def output_directory(path: Path | None) -> Path:
    """Return the directory of the reports. It is made with the first run in it, so that a refusal leaves nothing."""
    from profiler.run.store import check_directory, default_directory

    out = path or default_directory(("check",), Path("reports") / "runs")
    check_directory(out)
    return out
