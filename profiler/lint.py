"""Finds costly lines by the exact counts of a step, and leaves out those that a baseline accepts."""

from __future__ import annotations

import ast
import json
import linecache
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from profiler.analyse.model.finding import RuleText
from profiler.analyse.window import measured_window, process_rows
from profiler.check.causes import copied_bytes, rule_of_line, rules
from profiler.check.counters.files import portable_path, root_folder
from profiler.check.counters.lines import amounts_by_line
from profiler.check.counters.operators import GROWTH
from profiler.check.diff import changed_lines
from profiler.check.model import CANDIDATE, PATIENCE_S, Change, Counted
from profiler.check.modes.sides import load_recordings
from profiler.check.outputs import format as fmt
from profiler.check.speed.controlled_process import Program
from profiler.check.speed.interleave import record_steps
from profiler.check.worktree.checkout import Repository
from profiler.core.errors import ProfilerError
from profiler.core.files import locked, read_bytes
from profiler.core.masking import masked_source
from profiler.core.syntax import parsed_line
from profiler.core.terminal import called_as, plain
from profiler.core.units import significant
from profiler.report.blocks import Action
from profiler.report.next_step import next_step
from profiler.report.text import library_line, plural, shortened
from profiler.run.code_origin import library_sites
from profiler.run.model import MadeObject, Run, maker_of
from profiler.run.tables import SETTINGS, CallKind

STEPS: Final = 8
"""Steps that are counted: a line that counts something in each of them does so in every step."""
WARMUP: Final = 2
"""Steps before them, in which memory is allocated and code is compiled."""
IGNORE: Final = "profiler: ignore"
"""A comment with this text keeps its line from being reported."""
_PINNED_COPY: Final = "batch.pin_memory().to(device, non_blocking=True)"
_NOT_PER_STEP: Final = ("graph_breaks", "recompilations", GROWTH)
"""Counters of what need not occur in most steps."""
_EVERY_STEP: Final = 1.0
"""Events per step from which a line is reported: what it does now and then, such as logging, is no fault."""
_OF_DEVICE: Final = (CallKind.SYNC, CallKind.H2D, CallKind.D2H, CallKind.D2D)
"""Calls that a program makes of a device."""
_COPY: Final = ("pageable", "pinned")
"""End of the operation of a wait that is a copy."""


class LibraryLine(NamedTuple):
    """A line of a library that a line of the program calls."""

    file: str
    line: int
    function: str
    source: str
    """Its text; empty: it was not recorded."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A line at which a rule that needs no clock recognizes its cause."""

    rule: str
    title: str
    """The cause in one sentence."""
    change: Change
    """The line, with what it counts per step as `after`."""
    fix: str
    """What to do about it."""
    instead: str = ""
    """What to write instead, as code; empty: the rule has a sentence only."""
    library: LibraryLine | None = None
    """The line of a library that makes the call, where the line calls a library."""
    made_at: LibraryLine | None = None
    """The line that makes the object whose method waits there, such as an optimizer, where it is the only one."""


@dataclass(frozen=True, slots=True)
class LintResult:
    """What a few steps of a program were found to do."""

    findings: tuple[LintFinding, ...]
    steps: int
    """Counted steps."""
    syncs: float
    """Waits for the device per step."""


def lint(
    argv: Sequence[str],
    *,
    virtual_cuda: str,
    steps: int = STEPS,
    ignore: Sequence[str] = (),
    patience: float = PATIENCE_S,
    new_since: str | None = None,
) -> LintResult:
    """Run a program until it has taken some steps, and judge what its lines did in them.

    :param virtual_cuda: number and name of the CUDA devices that it sees, as in `1:h100`; empty: none.
    :param ignore: names of rules that are left out.
    :param new_since: a git revision; only lines that are new or changed since then are judged.
    :raises ProfilerError: it fails, takes too few steps, or uses none of the devices; or a rule to ignore is unknown.
    """
    if unknown := sorted(set(ignore) - set(rules())):
        raise ProfilerError(f"--ignore: there is no rule {unknown[0]}")
    program = Program(CANDIDATE, tuple(argv), Path.cwd(), virtual_cuda=virtual_cuda, count=True)
    program.executable()
    with _temporary_folder() as folder:
        remedy = f"let it take {WARMUP + steps} steps or more"
        paths = record_steps(program, folder, ["lint"], steps=steps, warmup=WARMUP, patience=patience, remedy=remedy)
        recordings = load_recordings(paths, str(program.cwd))
    run, counted = recordings.runs[0], recordings.counted[0]
    optimizers = run.info.facts.get("optimizers")
    devices = {device for each in optimizers for device in each["devices"]} if isinstance(optimizers, list) else set()
    if virtual_cuda and not np.isin(run.calls["kind"], _OF_DEVICE).any() and devices <= {"cpu"}:
        raise ProfilerError(
            "the script used no CUDA device, so nothing was judged: give it its option for one, such as --device cuda, "
            "or count reads that would wait on a GPU with lint --cpu"
        )
    root = root_folder(str(program.cwd), run.info.argv)

    def source(file: str, line: int) -> str:
        return masked_source(linecache.getline(f"{root}/{file}", line).strip())

    result = judge_counts(run, counted, root, source, ignore)
    if new_since is None:
        return result
    repository = Repository.find(Path(root))
    changed = changed_lines(repository.root, repository.resolve(new_since, "--new-since"))
    absolute = Path(root).resolve()
    new = (
        each
        for each in result.findings
        if each.change.line in changed.get(os.path.normpath(absolute / each.change.file), ())
    )
    return replace(result, findings=tuple(new))


def judge_counts(
    run: Run, counted: Counted, root: str, source: Callable[[str, int], str], ignore: Sequence[str] = ()
) -> LintResult:
    """Judge what the lines of a counted run did in its steps.

    :param root: the folder of the program, to which the files of lines are relative.
    :param source: the text of a line of a file; empty: as it was recorded.
    """
    from profiler.diagnose.rules.settings import memory_fills

    usual, lines = usual_lines(run, counted.steps, root), run.info.facts.get(SETTINGS)
    made = {
        name: LibraryLine(file := portable_path(at["file"], root), at["line"], at["function"], source(file, at["line"]))
        for name, at in (lines.items() if isinstance(lines, Mapping) else ())
    }
    objects = {(portable_path(file, root), line): used for (file, line), used in run.made.items()}
    found = list(find(counted, source, library_lines(run, root), made, objects))
    at = made.get("deterministic")
    if at is not None and run.info.facts.get("fills_memory") and IGNORE not in at.source:
        change = Change("", at.file, at.line, at.function, "", 0.0, 0.0, at.source)
        found.append(LintFinding(memory_fills.name, memory_fills.title, change, memory_fills.fix))
    findings = (
        each
        for each in found
        if each.rule not in ignore
        and (each.change.counter in ("", *_NOT_PER_STEP) or (each.change.file, each.change.line) in usual)
    )
    return LintResult(tuple(findings), counted.steps, counted.totals.get("syncs", 0.0) / counted.steps)


def usual_lines(run: Run, steps: int, root: str) -> set[tuple[str, int]]:
    """Return the lines that count something in more than half of the last steps: a checkpoint or a log does much in a
    few.

    :param steps: how many were counted.
    """
    window = measured_window(run)
    last = process_rows(run.steps, window)[-steps:]
    if not len(last):
        return set()
    calls, counts = process_rows(run.calls, window), process_rows(run.counts, window)
    found = []
    # what was counted in a step has the time of its end
    for at, of in ((calls["begin"], calls["site"]), (counts["time"], counts["site"])):
        index = np.searchsorted(last["end"], at, "left")
        inside = (of >= 0) & (at >= last["begin"][0]) & (index < len(last))
        found.append(np.stack([of[inside], index[inside]], axis=1))
    pairs = np.unique(np.concatenate(found), axis=0)
    sites, numbers = np.unique(pairs[:, 0], return_counts=True)
    usual = (run.sites[site] for site in sites[numbers > steps / 2].tolist())
    return {(portable_path(site.file, root), site.line) for site in usual}


Place = tuple[str, int, str]
"""File and number of a line, and the name of a call."""


def library_lines(run: Run, root: str) -> dict[Place, LibraryLine]:
    """Return the line of a library that makes most calls of a name for a line of the program."""
    numbers = Counter(
        zip(run.calls["site"].tolist(), run.calls["name"].tolist(), library_sites(run, run.calls), strict=True)
    )
    return {
        (portable_path(run.sites[site].file, root), run.sites[site].line, run.names[name]): LibraryLine(
            frame.file, frame.line, frame.function, frame.source
        )
        for (site, name, frame), _ in reversed(numbers.most_common())  # the most frequent one is kept
        if frame is not None
    }


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Make a folder and remove it at the end, unless an error names the output of the program in it."""
    with ExitStack() as cleanup:
        folder = Path(tempfile.mkdtemp(prefix="profiler-lint-"))
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            yield folder
        except ProfilerError:
            cleanup.pop_all()
            raise


def find(
    counted: Counted,
    source: Callable[[str, int], str],
    libraries: Mapping[Place, LibraryLine] = MappingProxyType({}),
    made: Mapping[str, LibraryLine] = MappingProxyType({}),
    objects: Mapping[tuple[str, int], Sequence[MadeObject]] = MappingProxyType({}),
) -> Iterator[LintFinding]:
    """Yield the findings about what the lines of a process count in each step, by file and line.

    :param source: the text of a line of a file.
    :param libraries: the lines of libraries that make the calls.
    :param made: name of a class, or of a setting -> the only line that makes such an object, or changes it.
    :param objects: those that lines use, by file and number.
    """
    from profiler.diagnose.rules.device import filled_on_device, made_on_host, pageable_copies
    from profiler.diagnose.rules.reads import shape_from_values
    from profiler.diagnose.rules.whole_run import memory_creep

    changes = [
        Change(counter, line.file, line.number, line.function, line.operation, 0.0, amount, text)
        for counter in sorted({line.counter for line in counted.lines})
        for line, (amount,) in amounts_by_line(counter, [counted]).items()
        for text in [source(line.file, line.number) or line.text]
    ]
    copied = copied_bytes(changes)
    seen: set[tuple[str, str, int]] = set()
    for change in sorted(changes, key=lambda each: (each.file, each.line, each.counter)):
        is_growing = change.counter == GROWTH and (change.file, change.line) in counted.growing
        is_usual = change.after >= _EVERY_STEP or change.counter in _NOT_PER_STEP
        is_copy = change.counter == "syncs" and change.operation.endswith(_COPY)  # a finding of its own
        is_copy = is_copy and (change.file, change.line, change.function) in copied
        if not is_usual or is_copy or (change.counter == GROWTH and not is_growing):
            continue
        rule = rule_of_line(change, copied)
        instead = memory_creep.code if is_growing else ""
        if change.counter == "h2d" and rule is made_on_host:
            instead = filled_on_device(change.source) or ""
        elif change.counter == "h2d" and rule is None and change.operation.endswith("pageable"):
            rule, instead = pageable_copies, pinned_copy(change.source) or _PINNED_COPY
        elif change.counter == "h2d" and rule is None and change.operation.endswith("pinned"):
            place = change.file, change.line, change.function, change.operation
            waits = {
                (each.file, each.line, each.function, each.operation) for each in changes if each.counter == "syncs"
            }
            rule = pageable_copies if place in waits else None
        if rule is None or IGNORE in change.source or (key := (rule.name, change.file, change.line)) in seen:
            continue
        seen.add(key)
        library = libraries.get((change.file, change.line, change.operation))
        cure = _cure(rule, change, library)
        if change.operation == "bool" and any(_selects(each, change) for each in changes):
            cure = shape_from_values.fix
        code = "" if cure else instead or ("" if "{" in rule.code else rule.code)
        maker = next((made.get(name) for pattern, name in _MAKERS if pattern.search(change.source)), None)
        at = maker if change.counter == "syncs" else None
        if at is None and library is not None:
            site = maker_of(objects.get((change.file, change.line), ()), library.function)
            at = LibraryLine(change.file, site.line, "", site.source) if site else None
        yield LintFinding(rule.name, rule.title, change, cure or rule.fix, code, library, at)


_MAKERS: Final = (
    (re.compile(r"(?i)scaler\w*\.(step|update)\("), "GradScaler"),
    (re.compile(r"(?i)\bopt(im(izer)?)?\w*\.step\("), "Optimizer"),
)
"""Calls that wait within torch or a library -> the class of the object that they are methods of."""
_TRUTH: Final = re.compile(r"^(el)?if (\w+)\.any\(\)")


def _selects(other: Change, change: Change) -> bool:
    """Return whether a line asks for the shape of what a mask selects that this line tests: `if mask.any():`."""
    if (tested := _TRUTH.match(change.source)) is None:
        return False
    is_near = (other.file, other.function) == (change.file, change.function) and other.counter == "syncs"
    is_shape = other.operation in ("nonzero", "mask index", "masked_select")
    return is_near and is_shape and re.search(rf"\b{tested[2]}\b", other.source) is not None


def _cure(rule: RuleText, change: Change, library: LibraryLine | None) -> str | None:
    """Return what the text of the library's line tells about the cure, or else the program's own; None: nothing."""
    from profiler.diagnose.rules.device import OF_PINNED, cure_of_copy, pageable_copies
    from profiler.diagnose.rules.reads import cure_of_read

    inner = library.source if library else ""
    if rule is pageable_copies:
        if change.operation.endswith("pinned"):
            return OF_PINNED
        return cure_of_copy(inner) or cure_of_copy(change.source)
    return cure_of_read(change.operation, change.source, inner) if change.counter == "syncs" else None


def pinned_copy(source: str) -> str:
    """Return `x.pin_memory().to(device, non_blocking=True)` for `x.to(device)` in the statement of a line.

    Empty where the line has no such copy, several, or is a part of a statement.
    """
    tree = parsed_line(source)
    if tree is None:
        return ""
    copies = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda")
    ]
    if len(copies) != 1 or not isinstance(function := copies[0].func, ast.Attribute):
        return ""
    function.value = ast.Call(ast.Attribute(function.value, "pin_memory"), [], [])
    options = [each for each in copies[0].keywords if each.arg != "non_blocking"]
    copies[0].keywords = [*options, ast.keyword("non_blocking", ast.Constant(True))]
    return ast.unparse(tree)


# ---------------------------------------------------------------- accepted findings

DESCRIPTION: Final = "Findings of `python -m profiler lint` that are accepted: change them with --update only."
_FIELDS: Final = ("rule", "file", "function", "source")
"""They name a finding. The number of its line is not one of them, because lines move."""


def without_known(result: LintResult, path: Path) -> LintResult:
    """Return the result with the findings only that the file does not have; of equal ones, those beyond its number.

    :raises ProfilerError: there is no such file, or it is damaged.
    """
    try:
        rows: Any = json.loads(read_bytes(path).decode("utf-8"))["findings"]
        known = Counter(tuple(str(row[name]) for name in _FIELDS) for row in rows)
    except FileNotFoundError:
        raise ProfilerError(f"there is no baseline {path}: write it with lint --update") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProfilerError(f"{path} is no baseline of lint, or is damaged: write it with lint --update") from error
    new = []
    for finding in result.findings:
        known[_key(finding)] -= 1
        if known[_key(finding)] < 0:
            new.append(finding)
    return replace(result, findings=tuple(new))


def write(result: LintResult, path: Path) -> None:
    """Write the findings of a result to a file, and make its folder.

    :raises ProfilerError: it cannot be written.
    """
    rows = [dict(zip(_FIELDS, key, strict=True)) for key in sorted(map(_key, result.findings))]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProfilerError(f"cannot make the folder of {path}: {error.strerror}") from error
    with locked(path, "baseline") as file:
        file.replace(json.dumps({"what": DESCRIPTION, "findings": rows}, indent=2, ensure_ascii=False) + "\n")


def _key(finding: LintFinding) -> tuple[str, ...]:
    change = finding.change
    return finding.rule, change.file, change.function, change.source


# ---------------------------------------------------------------- findings as text and as data

_WIDTH: Final = 80


def lint_lines(result: LintResult) -> Iterator[str]:
    """Yield a finding in three to six lines, as compilers print a warning; a summary last."""
    for finding in result.findings:
        change = finding.change
        yield f"{fmt.location(change)}: {finding.rule}: {finding.title}"
        if change.source:
            yield f"    {plain(change.source)}"
        if finding.library is not None:
            file, line, function, source = finding.library
            yield shortened(f"    {plain(f'{library_line(file, line, function)}  {source}'.rstrip())}", _WIDTH)
        if finding.made_at is not None:
            at = finding.made_at
            yield shortened(f"    made at {plain(f'{at.file}:{at.line}  {at.source}'.rstrip())}", _WIDTH)
        if change.counter:
            yield f"    {_amount(change)}"
        yield f"    {finding.fix}"
        if finding.instead:
            yield f"    instead: {plain(finding.instead)}"
        yield ""
    number = plural(len(result.findings), "finding") if result.findings else "No finding"
    waits = f"{significant(result.syncs)} waits for the device per step"
    yield f"{number} in {plural(result.steps, 'counted step')}; {waits}. Counts are exact, and no time was measured."


def _amount(change: Change) -> str:
    amount = fmt.amount(change.after, change.counter)
    if change.counter == "growth_bytes":
        return f"{amount} more of what this line makes stay in use after each step; another line may keep them"
    operation = f"{plain(change.operation)}: " if change.operation else ""
    return f"{operation}{amount} {fmt.counter_noun(change.counter, change.after)} per step"


def lint_document(result: LintResult, program: str = "SCRIPT") -> dict[str, Any]:
    """Return `next_step`, `steps`, `syncs_per_step`, and `findings`, each with its rule, line, amount and cure.

    `library` is the line of a library that makes the call, and `made_at` the line that makes its object.

    :param program: the program with the options of `lint`, as a shell reads them.
    """
    findings = [
        {
            "rule": each.rule,
            "title": each.title,
            **{name: getattr(each.change, name) for name in ("file", "line", "function", "operation", "counter")},
            "per_step": each.change.after,
            "source": each.change.source,
            "fix": each.fix,
            "instead": each.instead,
            "library": each.library and each.library._asdict(),
            "made_at": each.made_at and each.made_at._asdict(),
        }
        for each in result.findings
    ]
    head = {"next_step": _next_step(result, program), "steps": result.steps, "syncs_per_step": result.syncs}
    return {**head, "findings": findings}


def lint_json(result: LintResult, program: str = "SCRIPT") -> str:
    """Return the document as strict JSON."""
    return json.dumps(lint_document(result, program), indent=2, allow_nan=False)


def _next_step(result: LintResult, program: str) -> str:
    """Return the cure of the line for which the host waits most often; without such a line, of the first finding."""
    if not result.findings:
        return next_step((Action("Keep the code as it is: no rule finds fault with a line"),))
    most = max(result.findings, key=lambda each: each.change.after if each.change.counter == "syncs" else 0.0)
    at = most.made_at or most.change
    again = Action("Count again", command=f"{called_as()} lint {program}")
    return next_step((Action(most.fix, code=most.instead, lines=(f"{at.file}:{at.line}",)), again))
