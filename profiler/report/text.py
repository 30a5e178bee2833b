"""Names the values of a run in words: times, numbers, lines of code, states of threads, and what a step is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path, PurePath
from typing import Final

from profiler.analyse.model.device import HostState, IdleBlame, SiteOrigin
from profiler.analyse.model.host import Period, ThreadState
from profiler.analyse.model.input import InputPart
from profiler.analyse.model.measures import Missing, Topic
from profiler.core import units
from profiler.core.facts import CHANGED, UNKNOWN_CHANGES
from profiler.run.model import Site, StepDefinition, StepKind


def relative_path(path: Path) -> str:
    """Write a path relative to the working directory where it lies below that."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def local_time(text: str) -> str:
    """Write an ISO 8601 time to the minute, for people; any other text as it is."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return text
    zone = " UTC" if parsed.utcoffset() == timedelta(0) else parsed.strftime(" %z")
    return parsed.strftime("%Y-%m-%d %H:%M") + zone.rstrip()


def capitalized(text: str) -> str:
    """Return the text with a capital letter at its begin; all other letters stay."""
    return text[:1].upper() + text[1:]


def site_text(site: Site) -> str:
    """`train.py:8`"""
    return at(site).removeprefix(" at ")


def the_process(role: str) -> str:
    """`the training process`, but `rank 0`"""
    return role if role[-1:].isdecimal() else f"the {role}"


def part_of_time(busy: float, peak: float | None) -> str:
    """`100% of the time, at 12% of the card's peak`, the latter where it is known."""
    return f"{units.share(busy)} of the time" + (
        f", at {units.share(peak)} of the card's peak" if peak is not None else ""
    )


def commit_text(commit: str | None) -> str:
    """`3f2a9c1 with uncommitted changes`: the commit of a manifest."""
    if not commit:
        return "not in a git checkout"
    if commit.endswith(UNKNOWN_CHANGES):
        return f"{commit.removesuffix(UNKNOWN_CHANGES)}, perhaps with uncommitted changes"
    return commit.replace(CHANGED, " with uncommitted changes")


def plural(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def times(number: int) -> str:
    """`once`, `2 times`."""
    return "once" if number == 1 else f"{number:,} times"


def too_few(samples: int) -> str:
    """`1 stack sample is too few`, `7 stack samples are too few`"""
    return f"{plural(samples, 'stack sample')} {'is' if samples == 1 else 'are'} too few"


def listed(names: Iterable[str]) -> str:
    """`a, b and c`"""
    *before, last = tuple(names) or ("",)
    return f"{', '.join(before)} and {last}" if before else last


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters; what is left out at its end is marked."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def library_line(file: str, line: int, function: str) -> str:
    """`rollkit/__init__.py:11 in FragmentBatch.__init__()`"""
    function = function.partition(".<locals>.<")[0]  # a comprehension is a part of its function
    return f"{file}:{line}" if function.startswith("<") else f"{file}:{line} in {function}()"


_NOTEBOOK: Final = re.compile(r"(?:.*/ipykernel_\d+/\d+\.py|<ipython-input-(\d+)-\w+>)")
"""The name that IPython gives to the code of a cell: a file that does not exist, or, before version 7.23, one with the
number of the cell."""


def notebook_cell(file: str) -> str:
    """`notebook cell`, with its number where it is known; empty for a file."""
    match = _NOTEBOOK.fullmatch(file)
    return "" if match is None else " ".join(filter(None, ("notebook cell", match[1])))


def file_name(site: Site) -> str:
    """`train.py`, `models/__init__.py`, `notebook cell`."""
    path = PurePath(site.file)
    if cell := notebook_cell(site.file):
        return cell
    return f"{path.parent.name}/{path.name}".lstrip("/") if path.stem == "__init__" else path.name


def at(site: Site | None) -> str:
    """` at train.py:88`, ` at line 3 of a notebook cell`; empty where the site is not known."""
    if site is None:
        return ""
    if cell := notebook_cell(site.file):
        return f" at line {site.line} of {'a ' * (not cell[-1].isdigit())}{cell}"
    return f" at {file_name(site)}:{site.line}"


def kernel_name(name: str) -> str:
    """Shorten the name of a kernel in C++: without return type, arguments and the namespaces of torch."""
    for part in _NAMESPACES:
        name = name.replace(part, "")
    return name.partition("(")[0] or name


_NAMESPACES: Final = ("void ", "(anonymous namespace)::", "at::native::", "std::")


_INNER: Final = re.compile(r"<locals>\.|\.(<locals>\.)?<(listcomp|genexpr|dictcomp|setcomp)>")


def function_name(site: Site) -> str:
    """`train()`, `Data.__getitem__()`; a comprehension belongs to the function that contains it."""
    return f"{_INNER.sub('', site.function)}()"


def missing_name(gap: Missing) -> str:
    """Return the name of something that was not measured."""
    title = _TOPICS.get(gap.topic, "")
    if not gap.item:
        return title
    if gap.topic is Topic.COLLECTOR:
        return f"collector {gap.item}"
    return f"{title}: {gap.item}" if title else gap.item


_TOPICS: Final[Mapping[Topic, str]] = {
    Topic.HOST_BREAKDOWN: "breakdown of the host's time",
    Topic.DEVICE_BREAKDOWN: "breakdown of the device's time",
    Topic.IDLE_BLAME: "causes of the device's idle time",
    Topic.FLAME_GRAPH: "flame graph",
    Topic.CALL_SITES: "sites of calls",
}


def host_state(blame: IdleBlame) -> str:
    """Word what the host did while the device was idle. `the call` is the one at the site of the row."""
    if blame.state is HostState.AFTER_SYNC:
        return "after the sync" if blame.subject == "sync" else f"after the sync in the {blame.subject} call"
    near = _ORIGINS[blame.origin]
    if blame.state is HostState.IN_REGION:
        return f"in {'' if blame.subject.startswith('operator ') else 'region '}{blame.subject}{near}"
    if blame.state is HostState.IN_PYTHON:
        if blame.site is None:
            return "in Python"
        return f"{'in torch or Triton, below' if blame.category == 'framework' else 'in'} {blame.site.function}()"
    if blame.state is HostState.BETWEEN_CALLS:
        if blame.category == "python":
            return f"in Python{near or ' between calls'}"
        return near.strip() or "between recorded calls"
    return _STATES[blame.state].format(blame.subject)


_STATES: Final[Mapping[HostState, str]] = {
    HostState.AFTER_SYNC_IN_REGION: "after the sync, in region {}",
    HostState.IN_CALL: "in the {} call",
    HostState.BLOCKED_IN_CALL: "blocked in the {} call",
    HostState.RECORDING: "in the profiler's own recording",
    HostState.WITHOUT_CORE: "without a core to run on",
    HostState.EARLIER_WORK: "before the first activity of the trace: it may have run earlier work",
    HostState.SUBMITTED: "while it waits for an event, another stream or another program, or for what the trace lacks",
    HostState.WITHIN_GRAPH: "between the kernels of one launch, such as that of a CUDA graph",
}
_ORIGINS: Final[Mapping[SiteOrigin, str]] = {
    SiteOrigin.ITSELF: "",
    SiteOrigin.FOLLOWING_CALL: " before the call",
    SiteOrigin.PRECEDING_CALL: " after the call",
}
THREAD_STATES: Final[Mapping[str, str]] = {
    ThreadState.WAITING_FOR_DATA: "waiting for data",
    ThreadState.MAKING_DATA: "making its data itself",
    ThreadState.RECEIVING_DATA: "receiving data from its workers",
    ThreadState.SYNC: "blocked in a sync",
    ThreadState.PROBABLY_SYNC: "probably blocked in a sync",
    ThreadState.WAITING_FOR_RANKS: "waiting for other ranks",
    ThreadState.PYTHON: "busy in Python",
    ThreadState.TORCH: "inside torch operators",
    ThreadState.NATIVE: "inside native code",
    ThreadState.COMPILING: "compiling",
    ThreadState.IMPORTING: "importing modules",
    ThreadState.CHECKPOINTING: "writing a checkpoint",
    ThreadState.LOGGING: "logging",
    ThreadState.LOCK: "waiting for a lock",
    ThreadState.GIL: "waiting for the GIL",
    ThreadState.CORE: "waiting for a free core",
    ThreadState.NETWORK: "waiting for the network",
    ThreadState.CHILD: "waiting for another process",
    ThreadState.IDLE: "idle",
}
PERIODS: Final[Mapping[Period, str]] = {
    Period.STARTUP: "before the first step",
    Period.WARM_UP: "warm-up steps (not in any other figure)",
    Period.TRACED: "steps that torch's profiler traced (only in figures of the device)",
    Period.PAUSE: "pauses between phases of training (not in any other figure)",
    Period.TEARDOWN: "after the last step",
}


def input_part(part: InputPart) -> str:
    """Return name of a part of data loading, with the thread of the main process where it is not in a loader."""
    return part.name + _CONTEXTS[part.context]


_CONTEXTS: Final = {"loader": "", "inline": ", outside of a loader", "own thread": ", in a thread of its own"}


def step_text(step: StepDefinition | None) -> str:
    """Return the definition of a step in a run, and how it was found; empty where a run has no steps."""
    if step is None:
        return ""
    if step.kind is StepKind.WHOLE_TRACE:
        return f"{step.label}: it has no ProfilerStep annotations"
    if step.kind is StepKind.WHOLE_RUN:
        asked = "only one batch was requested from a DataLoader" if step.loader_asked else "no DataLoader was used"
        stepped = _optimizer_steps(step.optimizer_steps or 0)
        return f"{step.label}: {stepped}, {asked}, and the program marks no steps (profiler.step())"
    if step.kind is StepKind.BACKWARD:
        return f"steps that end with {_phases(step)}: {_optimizer_steps(step.optimizer_steps or 0)}"
    if step.kind is StepKind.LOADER:
        counted = "" if step.optimizer_steps is None else f": {_optimizer_steps(step.optimizer_steps)}"
        return f"batches of {_phases(step)}{counted}"
    if step.kind is not StepKind.OPTIMIZER:
        return step.label
    text = f"steps of {_phases(step)}"
    if step.skipped:
        text += f", of which GradScaler skipped {step.skipped:,}"
    if step.nested:
        more = f" and {len(step.nested) - 2} more" if len(step.nested) > 2 else ""
        text += f"; within them {', '.join(step.nested[:2])}{more} stepped too"
    return text


def _phases(step: StepDefinition) -> str:
    """`A then B and C alternating`: what ends the steps of each phase; at most three phases are named."""
    texts = [_in_turns(phase) for phase in step.phases]
    return " then ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


def _in_turns(names: tuple[str, ...]) -> str:
    if len(names) == 1:
        return names[0]
    shown = names if len(names) < 4 else (*names[:3], f"{len(names) - 3} more")
    return f"{', '.join(shown[:-1])} and {shown[-1]} alternating"


def _optimizer_steps(count: int) -> str:
    """Tell how often an optimizer stepped, if too rarely to define the steps."""
    return {0: "no optimizer stepped", 1: "an optimizer stepped only once"}.get(
        count, f"an optimizer stepped only {count:,} times"
    )
