"""Reads and writes the checked-in baseline, with one section for each kind of machine and work, for people to review.

The file is JSON with a counter or a line of code on each line and a checksum for each section. Another file than this
tool writes is refused in one line, never read in part.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictInt,
    StrictStr,
    ValidationError,
)

import profiler
from profiler.analyse.timing.counters import EXPECTED_COUNTERS, NO_DEVICE
from profiler.check.counters.compare import MEMORY, UNGATED, is_judged_by_line
from profiler.check.counters.environment_key import (
    Key,
    environment_key,
    nearest_key,
    work_of_a_step,
)
from profiler.check.counters.files import missing_script, portable_command, portable_program, root_folder
from profiler.check.counters.lines import changed_lines
from profiler.check.counters.operators import whole
from profiler.check.diff import FileChange, content_ids
from profiler.check.model import Counted, CountedLine
from profiler.core.errors import Notice, ProfilerError
from profiler.core.files import locked, read_bytes
from profiler.core.masking import masked_command
from profiler.core.metrics import CHECKPOINT, EVALUATION, NUMBER, ONCE, STARTUP, counter_period
from profiler.core.units import shorten
from profiler.report.text import step_text
from profiler.run.code_origin import working_folder
from profiler.run.model import Run
from profiler.run.tables import WOULD_SYNC

SCHEMA: Final = 3
"""Layout of the file. 3 has the operators of a line, the stage of a step in which it waits, memory in blocks, and
counters of evaluations, checkpoints and work that occurs once."""
_OLDEST: Final = SCHEMA - 1
"""The oldest layout that is read."""
DESCRIPTION: Final = (
    "Counters per step of a training program, for `python -m profiler check`: change them with --update only."
)
_DIGITS: Final = 32
"""Hexadecimal digits of SHA-256 in a checksum, which protects from accidents and not from malice."""
_CONFLICT: Final = re.compile(r"^(?:<{7}|={7}|>{7}|\|{7})(?: |$)", re.MULTILINE)
_HELP: Final = "restore it from version control, or replace all of it with --update REASON"
_FORMER: Final = frozenset({
    WOULD_SYNC, f"{WOULD_SYNC}_in_loader", f"{EVALUATION}{WOULD_SYNC}", f"{CHECKPOINT}{WOULD_SYNC}",
})  # fmt: skip
"""Counters of former versions, which guessed from the source where a tensor would be. They are not compared."""
_MAX_SHOWN: Final = 40
"""Characters of a value that an error quotes."""


# ---------------------------------------------------------------- the types of the file


def _number(value: float) -> float | int:
    """Return whole numbers without a point, as any tool that rewrites the file may have them."""
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 else value


def _ordered_range(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError("is no range: the lowest comes first")
    return ends


Amount = Annotated[float, Field(ge=0, le=1e300, strict=True), PlainSerializer(_number)]
Range = Annotated[
    tuple[Amount, Amount],
    BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value, value)),
    AfterValidator(_ordered_range),
    PlainSerializer(lambda ends: _number(ends[0]) if ends[0] == ends[1] else [*map(_number, ends)]),
]
"""Lowest and highest, per step; in the file one number where they are equal."""
Count = Annotated[StrictInt, Field(ge=1)]
Text = Annotated[
    StrictStr,
    # arguments of a command need not be text
    BeforeValidator(lambda value: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value),
]


class Row(NamedTuple):
    """A counter at a line of code, per step."""

    counter: Text
    file: Text
    line: Annotated[StrictInt, Field(ge=0)]
    function: Text
    operation: Text
    amount: Amount
    text: Text
    stage: Text = ""
    """When in a step it waits: before, in or after a backward pass, or in another thread; left out where empty."""


class BaselineSection(BaseModel):
    """The counters of a program under one key, per step. The fields are in the order of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: dict[Text, Text]
    """The facts that must be equal, see `environment_key`."""
    work: dict[Text, Text]
    """How much work a step is: facts that must be equal where both sides know them."""
    command: Text
    step: Text
    """The definition of a step, in words."""
    steps: Count
    """Measured in each process."""
    processes: Count
    counters: dict[Text, Range]
    workers: dict[Text, Range]
    sites: tuple[Row, ...]
    worker_sites: tuple[Row, ...]
    sources: dict[Text, Text]
    """Name of each of the program's own files in `sites` -> the id that git gives to its content."""
    updated_at: Text
    """ISO 8601, UTC."""
    reason: Text
    """Why an update let more pass, in the words of its author."""
    tool: Text
    """Version of the profiler that wrote it."""

    def content(self) -> dict[str, Any]:
        """Return the section as JSON values, without its checksum."""
        values = self.model_dump()
        for name in ("key", "work", "counters", "workers", "sources"):
            values[name] = dict(sorted(values[name].items()))
        for name in ("sites", "worker_sites"):
            rows = sorted(getattr(self, name))
            values[name] = [[*row[:5], _number(row[5]), row[6], *filter(None, row[7:])] for row in rows]
        return values

    def digest(self) -> str:
        """Return the checksum of the content, however it is laid out."""
        content = json.dumps(self.content(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(content.encode("ascii")).hexdigest()[:_DIGITS]


class _StoredSection(BaselineSection):
    checksum: StrictStr


def _from_second_layout(section: BaselineSection) -> BaselineSection:
    """Return the section without what layout 2 counted in another way.

    These are the bytes of tensors instead of blocks, and 0 of what needs a device without one. Some versions stored
    commands as they were given, with their secrets.
    """
    unknown = EXPECTED_COUNTERS if section.key.get("device") == NO_DEVICE else ()
    counters, workers = (
        {name: ends for name, ends in ranges.items() if not name.endswith(MEMORY) and (ends[1] or name not in unknown)}
        for ranges in (section.counters, section.workers)
    )
    arguments = {"arguments": masked_command(text)} if (text := section.key.get("arguments")) is not None else {}
    sites = tuple(row for row in section.sites if not row.counter.endswith(MEMORY))
    values = {"counters": counters, "workers": workers, "sites": sites, "key": {**section.key, **arguments}}
    return section.model_copy(update={**values, "command": masked_command(section.command)})


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    what: Any
    schema_: Any = Field(alias="schema")
    sections: Annotated[tuple[_StoredSection, ...], Field(min_length=1)]


class DamagedError(ProfilerError):
    """A file that is no baseline as this tool writes them; an update may replace it."""

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(f"the baseline {path} {fault}: {_HELP}")
        self.fault = fault


# ---------------------------------------------------------------- reading and writing


def read_sections(path: Path) -> tuple[BaselineSection, ...]:
    """Return all sections of a file; at least one.

    :raises DamagedError: it is damaged, or something else than this tool changed it.
    :raises ProfilerError: it cannot be read, or a newer version wrote it.
    """
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        raise ProfilerError(f"there is no baseline at {path}: write one with --update") from None
    try:
        value = _parse(content)
        schema = value.get("schema") if isinstance(value, dict) else None
        if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
            raise ValueError(f"has no valid schema ({_shorten(schema)})")
    except ValueError as fault:
        raise DamagedError(path, str(fault)) from None
    if schema > SCHEMA:
        raise ProfilerError(
            f"the baseline {path} was written by a newer version of the profiler (schema {schema}, this one reads "
            f"{SCHEMA}): update it"
        )
    if schema < _OLDEST:
        raise DamagedError(path, f"has the layout of an old version (schema {schema})")
    try:
        stored = _File.model_validate(value).sections
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise DamagedError(path, f"is damaged at {location}: {first['msg']} ({_shorten(first['input'])})") from None
    sections: list[BaselineSection] = []
    for number, one in enumerate(stored, 1):
        section = BaselineSection(**{name: getattr(one, name) for name in BaselineSection.model_fields})
        if one.checksum != section.digest():
            raise DamagedError(
                path, f"was edited by hand, or is damaged (the checksum of section {number} does not match)"
            )
        sections.append(_from_second_layout(section) if schema < SCHEMA else section)
        if any(one.key == other.key for other in stored[: number - 1]):
            raise DamagedError(path, f"has two sections of one key (section {number} is the second), as after a merge")
    return tuple(sections)


def _parse(content: bytes) -> Any:
    """Parse the text of a file. A ValueError is the predicate of a sentence about what is wrong with it."""
    if not content.strip(b" \t\r\n\0"):
        raise ValueError("is empty")
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise ValueError("is not text in UTF-8") from None
    if conflict := _CONFLICT.search(text):
        raise ValueError(f"has the marks of a merge conflict in line {text.count(chr(10), 0, conflict.start()) + 1}")
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON (line {error.lineno}, column {error.colno}: {error.msg})") from None
    except RecursionError:
        raise ValueError("is not JSON that this tool wrote (RecursionError)") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"has {_shorten(next(name for name in names if names.count(name) > 1))} twice in one object")
    return dict(pairs)


def _shorten(value: Any) -> str:
    return shorten(repr(value), _MAX_SHOWN)


def read(path: Path, key: Key | None = None) -> BaselineSection:
    """Return the section of `key`; where there is none, the one whose key differs in the fewest parts.

    :raises ProfilerError: as `read_sections`.
    """
    sections = read_sections(path)
    return sections[nearest_key([section.key for section in sections], key or {})]


def recorded_steps(path: Path, command: Sequence[str], folder: str, *, is_counted: bool) -> int | None:
    """Return how many steps the file has of this command; None where its sections for it have several numbers.

    :param is_counted: whether operators are counted.
    :raises ProfilerError: as `read_sections`.
    """
    sections = read_sections(path)
    counting = "exact" if is_counted else ""
    same = tuple(one for one in sections if one.key.get("counting", "") == counting)
    numbers = {section.steps for section in (_sections_of(same, command, folder) or sections)}
    return numbers.pop() if len(numbers) == 1 else None


def recorded_way(path: Path, command: Sequence[str], folder: str) -> tuple[bool, str] | None:
    """Return whether operators were counted for the sections of this command, and the virtual devices, as in `1 h100`;
    None where these sections were counted in several ways.

    :raises ProfilerError: as `read_sections`.
    """
    own = _sections_of(read_sections(path), command, folder)
    ways = {("counting" in one.key, one.key.get("virtual_devices", "")) for one in own}
    return ways.pop() if len(ways) == 1 else None


def _sections_of(
    sections: tuple[BaselineSection, ...], command: Sequence[str], folder: str
) -> tuple[BaselineSection, ...]:
    """Return the sections of a command; where there are none, those of its program, else all."""
    for name, value in zip(("program", "arguments"), portable_program(command, folder), strict=True):
        sections = tuple(one for one in sections if one.key.get(name, "") == value) or sections
    return sections


def previous(path: Path, key: Key) -> tuple[BaselineSection | None, str]:
    """Return the section that an update replaces, if there is one; for a damaged file, which the update replaces
    entirely, what is wrong with it.

    :raises ProfilerError: the file cannot be read at all, or a newer version wrote it.
    """
    try:
        sections = read_sections(path) if path.exists() else ()
    except DamagedError as error:
        return None, (
            f"the file {error.fault}, so what it let pass is not known, and none of its sections is kept: version "
            f"control may have them"
        )
    return next((section for section in sections if section.key == key), None), ""


def write(path: Path, section: BaselineSection) -> bool:
    """Put a section in place of the one with its key, or beside the others; a damaged file is replaced entirely.

    :returns: whether anything but the date has changed; if not, the file is left alone.
    :raises ProfilerError: it cannot be written (it is then as it was), or a newer version wrote what is there.
    """
    with locked(path, "baseline") as file:
        try:
            existing = read_sections(file.path) if file.path.exists() else ()
        except DamagedError:
            existing = ()
        if any(other.key == section.key and _signless(other) == _signless(section) for other in existing):
            return False
        others = (other for other in existing if other.key != section.key)
        sections = sorted((*others, section), key=lambda one: sorted(one.key.items()))
        document = {
            "what": DESCRIPTION,
            "schema": SCHEMA,
            "sections": [{**one.content(), "checksum": one.digest()} for one in sections],
        }
        file.replace("".join(_layout(document, "")) + "\n")
    return True


def _signless(section: BaselineSection) -> BaselineSection:
    """Return the section without who wrote it, when and why."""
    return section.model_copy(update={"updated_at": "", "reason": "", "tool": ""})


def _layout(value: Any, indent: str) -> Iterator[str]:
    """Yield JSON with everything on a line of its own except for the parts of a range or a row: what a person
    reviews."""
    inner = f"{indent}  "
    if isinstance(value, dict) and value:
        items = [(f"{json.dumps(name, ensure_ascii=False)}: ", item) for name, item in value.items()]
        opening, closing = "{", "}"
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        items = [("", item) for item in value]
        opening, closing = "[", "]"
    else:
        yield json.dumps(value, ensure_ascii=False, allow_nan=False)
        return
    for number, (name, item) in enumerate(items):
        yield f",\n{inner}{name}" if number else f"{opening}\n{inner}{name}"
        yield from _layout(item, inner)
    yield f"\n{indent}{closing}"


# ---------------------------------------------------------------- from and to what was counted


def section_from(
    counted: Sequence[Counted],
    run: Run,
    command: str,
    *,
    reason: str = "",
    folder: str = "",
    now: datetime | None = None,
) -> BaselineSection:
    """Return the section of these processes.

    :param run: a run of one of them, for the key.
    :param folder: in which the command was started, where the run does not report it.
    :raises ProfilerError: there is no process, or they took different numbers of steps.
    """
    steps = {process.steps for process in counted}
    if len(steps) != 1:
        numbers = " and ".join(map(str, sorted(steps)))
        raise ProfilerError(f"a baseline needs processes of equally many steps; these took {numbers or 'no'} steps")
    root = root_folder(folder or working_folder(run), run.info.argv)
    return BaselineSection(
        key=environment_key(run, folder),
        work=work_of_a_step(run),
        command=portable_command(command, folder or working_folder(run)),
        step=step_text(run.step),
        steps=steps.pop(),
        processes=len(counted),
        counters=_ranges(counted, lambda process: process.totals),
        workers=_ranges(counted, lambda process: process.workers),
        sites=_rows(counted, lambda process: process.lines),
        worker_sites=_rows(counted, lambda process: process.worker_lines),
        sources=content_ids(counted_files(counted), root),
        updated_at=(now or datetime.now(UTC)).isoformat(timespec="seconds"),
        reason=reason,
        tool=profiler.__version__,
    )


def counted_files(counted: Iterable[Counted]) -> set[str]:
    """Return the files in which something was counted."""
    return {line.file for process in counted for lines in (process.lines, process.worker_lines) for line in lines}


def _ranges(counted: Sequence[Counted], amounts: Callable[[Counted], Mapping[str, float]]) -> dict[str, Range]:
    names = sorted({name for process in counted for name in amounts(process)})
    per_step = {name: [amounts(process).get(name, 0.0) / process.steps for process in counted] for name in names}
    return {name: (min(values), max(values)) for name, values in per_step.items()}


def _rows(counted: Sequence[Counted], lines: Callable[[Counted], Mapping[CountedLine, float]]) -> tuple[Row, ...]:
    """Return the largest amounts of all processes, per step."""
    largest: dict[CountedLine, float] = {}
    for process in counted:
        for line, amount in lines(process).items():
            if not line.counter.startswith((STARTUP, ONCE)):  # nothing compares them by line
                largest[line] = max(largest.get(line, 0.0), amount / process.steps)
    return tuple(sorted(Row(*line[:5], amount, *line[5:]) for line, amount in largest.items()))


def as_processes(section: BaselineSection) -> tuple[Counted, ...]:
    """Return the lowest and the highest amounts of a section, as two processes that counted them; without former
    counters."""
    steps = section.steps
    lines, worker_lines = (
        {CountedLine(*row[:5], *row[6:]): whole(row.amount * steps) for row in rows if row.counter not in _FORMER}
        for rows in (section.sites, section.worker_sites)
    )
    return tuple(
        Counted(
            steps,
            {name: whole(ends[end] * steps) for name, ends in section.counters.items() if name not in _FORMER},
            {name: whole(ends[end] * steps) for name, ends in section.workers.items() if name not in _FORMER},
            lines,
            worker_lines,
        )
        for end in (0, 1)
    )


# ---------------------------------------------------------------- what an update changes, and what it leaves


def loosened_counters(old: BaselineSection, new: BaselineSection, files: Sequence[FileChange] = ()) -> Iterator[str]:
    """Return a line for each counter of which more would pass under `new` than under `old`, which needs a reason.

    :param files: what became of the files of `old` since.
    """
    yield from _loosened(old.counters, new.counters, "")
    yield from _loosened(old.workers, new.workers, " in loader workers")
    before, after = as_processes(old), as_processes(new)
    for name, (_, high) in new.counters.items():
        if name in UNGATED or not is_judged_by_line(name) or name not in old.counters or high > old.counters[name][1]:
            continue
        for change in changed_lines(name, before, after, files):  # although the total of the counter did not rise
            if change.after > change.before:
                place = f"{change.file}:{change.line}"
                yield f"{name} at {place}: {change.before:g} -> {change.after:g} {counter_period(name)}"


def _loosened(old: Mapping[str, Range], new: Mapping[str, Range], where: str) -> Iterator[str]:
    for name in sorted(set(old) - set(UNGATED) - _FORMER):
        if name.endswith(NUMBER) or name.startswith(ONCE):
            continue
        low, high = old[name]
        if name not in new:
            yield f"{name}{where}: {_range_text(old[name])} {counter_period(name)} before, not counted any more"
        elif new[name][1] > high:
            yield f"{name}{where}: {_range_text(old[name])} -> {_range_text(new[name])} {counter_period(name)}"
        elif low == high and new[name][0] < new[name][1]:
            yield f"{name}{where}: always {high:g} before, {_range_text(new[name])} {counter_period(name)} now"


def _range_text(ends: Range) -> str:
    low, high = ends
    return f"{high:g}" if low == high else f"{low:g} to {high:g}"


def other_command(section: BaselineSection, command: str, folder: str) -> tuple[Notice, ...]:
    """Return a warning where the section was counted with another command, whose options may mean other work."""
    if portable_command(command, folder) == section.command:
        return ()
    return (Notice("other-command", {"command": section.command}),)


def former_counters(section: BaselineSection) -> tuple[Notice, ...]:
    """Return a warning where the section has a counter that nothing counts any more."""
    return (Notice("former-counter"),) if _FORMER & {*section.counters, *section.workers} else ()


def former_script(section: BaselineSection, key: Key, folder: str) -> dict[str, str]:
    """Return the part `program` of the key where it alone differs and the section's script is gone: it was renamed.

    :param folder: that commands are relative to.
    """
    differs = {name for name in {*section.key, *key} if section.key.get(name) != key.get(name)}
    renamed = differs == {"program"} and missing_script(section.command, folder)
    return {"program": key["program"]} if renamed else {}


def remaining_sections(path: Path, written: BaselineSection, folder: str) -> Iterator[str]:
    """Yield a line for each section that an update leaves as it is, with what to do where its script is gone.

    None is deleted automatically: a file holds several programs, and those of other branches, on purpose.

    :param folder: that commands are relative to.
    :raises ProfilerError: as `read_sections`.
    """
    for section in read_sections(path):
        if section.key == written.key:
            continue
        parts = ", ".join(f"{name} {text}" for name, text in section.key.items() if written.key.get(name) != text)
        script = missing_script(section.command, folder)
        hint = f"; there is no {script} any more: if it was renamed, delete that section" if script else ""
        yield f"left as it was: {section.command} ({parts or 'its key states less'}){hint}"
