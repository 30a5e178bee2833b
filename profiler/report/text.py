"""Sentences and names for the codes and values of a run: the one place where results become English.

`describe` turns a `Notice` into its sentence. `NOTICES` has a template for every code; a template is a format string
over the values of the notice, or a function of them where numbers need a plural or a unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from profiler.analyse.model import (
    WAITS_FOR_CORE,
    HostState,
    IdleBlame,
    InputPart,
    Mismatch,
    Missing,
    Period,
    ResultComparison,
    ResultDifference,
    SiteOrigin,
    ThreadState,
    Topic,
)
from profiler.core import units
from profiler.core.errors import Notice
from profiler.core.facts import CHANGED, UNKNOWN_CHANGES
from profiler.run.model import Site, StepDefinition, StepKind

Values = Mapping[str, Any]
NO_REASON: Final = "no reason was recorded"


def describe(notice: Notice | None) -> str:
    """The sentence of a notice; empty for None."""
    if notice is None:
        return ""
    template = NOTICES[notice.code]
    return template.format(**notice.values) if isinstance(template, str) else template(notice.values)


def relative_path(path: Path) -> str:
    """Relative to the working directory where it lies below that."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def capitalized(text: str) -> str:
    """The text with a capital letter at its begin; all other letters stay."""
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
    """A text of at most so many characters; what is left out at its end is marked."""
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
    """The name of a kernel as C++ reports it, without its return type, its arguments and the namespaces of torch."""
    for part in _NAMESPACES:
        name = name.replace(part, "")
    return name.partition("(")[0] or name


_NAMESPACES: Final = ("void ", "(anonymous namespace)::", "at::native::", "std::")


_INNER: Final = re.compile(r"<locals>\.|\.(<locals>\.)?<(listcomp|genexpr|dictcomp|setcomp)>")


def function_name(site: Site) -> str:
    """`train()`, `Data.__getitem__()`; a comprehension belongs to the function that contains it."""
    return f"{_INNER.sub('', site.function)}()"


def mismatch(fact: Mismatch) -> str:
    """`device: cpu against cuda`, `result predictions: 790 of 1,380 values of fixed differ from the first run ...`"""
    if fact.result is not None:
        return different_results([fact.result])
    return f"{fact.name}: {fact.before} against {fact.after}"


def _difference(side: str, difference: ResultDifference) -> str:
    call = f" of call {difference.call:,}" if difference.calls > 1 else ""
    text = f"{difference.different:,} of {plural(difference.compared, 'value')} of {side} differ from the first run"
    if difference.values is not None:
        before, after = (f"{value:,}" if isinstance(value, int) else f"{value:.6g}" for value in difference.values)
        return f"{text} (value {difference.position:,}{call} is {after} instead of {before})"
    if difference.counts is not None:
        old, new = difference.counts
        return f"{text} ({new:,} instead of {old:,} values{call or ' in all'})"
    return f"{text} (the checksum of all values{call})"


def different_results(results: Iterable[ResultComparison]) -> str:
    """`result loss: 1 of 3 values of fixed differ from the first run (value 2 is 3.5 instead of 2.5)`, of each."""
    return "; ".join(
        f"result {result.name}: {_difference(result.side, result.difference)}"
        for result in results
        if result.difference is not None
    )


def same_results(results: Iterable[ResultComparison]) -> str:
    """`predictions 3,000 of 3,000, loss 3 of 3`: the results that are the same in all runs; empty where none are."""
    texts = []
    for result in results:
        if result.are_same:
            ties = f" ({plural(result.near_ties, 'near tie')})" if result.near_ties else ""
            of = f" compared of {result.stated:,} stated" if result.stated > result.compared else ""
            texts.append(f"{result.name} {result.compared - result.near_ties:,} of {result.compared:,}{of}{ties}")
    return ", ".join(texts)


def uncompared_results(results: Iterable[ResultComparison]) -> str:
    """`fixed states no result predictions`: the results that were not compared, and why; empty where all were."""
    texts = []
    for result in results:
        if result.never:
            texts.append(
                f"{listed(result.never)} {'states' if len(result.never) == 1 else 'state'} no result {result.name}"
            )
        elif result.missing:
            texts.append(f"not all runs of {listed(result.missing)} state the result {result.name}")
    return "; ".join(texts)


def mismatches(facts: Iterable[Mismatch]) -> str:
    """All of them in one line."""
    return "; ".join(map(mismatch, facts))


def missing_name(gap: Missing) -> str:
    """The name of something that was not measured."""
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
    """The state of the host while the device was idle, in words. `the call` is the one at the site of the row."""
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
    """Name of a part of data loading, with the thread of the main process where it is not in a loader."""
    return part.name + _CONTEXTS[part.context]


_CONTEXTS: Final = {"loader": "", "inline": ", outside of a loader", "own thread": ", in a thread of its own"}


def step_text(step: StepDefinition | None) -> str:
    """The definition of a step in a run, and how it was found; empty where a run has no steps."""
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
    """How often an optimizer stepped, if too rarely to define the steps."""
    return {0: "no optimizer stepped", 1: "an optimizer stepped only once"}.get(
        count, f"an optimizer stepped only {count:,} times"
    )


def _unrecorded_time(values: Values) -> str:
    what = {"calls": "any region or call", "anything": "anything recorded"}[values["of"]]
    samples = f"{too_few(values['samples'])} ({values['needed']} needed)" if values["samples"] else "no stack sample"
    samples += " to say" if values["samples"] else " says"
    return f"{100 * values['share']:.1f}% of the step is outside of {what}, and {samples} what ran there"


def _several_devices(values: Values) -> str:
    busy = values["busy"]
    shares = ", ".join(f"device {number} {100 * share:.0f}%" for number, share in busy)
    return (
        f"one process used {len(busy)} devices, busy {shares}: causes of idle time are given only for the time in "
        "which none of them ran"
    )


def _ended_early(values: Values) -> str:
    code = "" if values["exit_code"] is None else f" (exit code {values['exit_code']})"
    ended = "failed" if values["state"] == "failed" else "was interrupted"
    return f"the run {ended}{code}: only its first part is here"


def _drift(values: Values) -> str:
    change = values["change"]
    slower, more = ("slower", "more") if change > 0 else ("faster", "less")
    return f"steps became {slower}: the last third takes {abs(change):.0%} {more} time than the first"


def _debug_mode_syncs(values: Values) -> str:
    seen, total = values["seen"], values["total"]
    others = "; the others are in the table of calls as 'other'" if seen < total else ""
    syncs = "syncs of the measured steps that torch's sync debug mode saw"
    return f"hooks saw {seen:,.0f} of the {total:,.0f} {syncs}{others}"


def _pairs(values: Values) -> str:
    times = (f"{label} {'none' if length is None else units.seconds(length)}" for label, length in values["seconds"])
    pairs = plural(values["pairs"], "pair")
    return f"{pairs} of runs; measured time of a run, warm-up not counted: {', '.join(times)}."


def _ratio_interval(values: Values) -> str:
    if values["pairs"] == 1:
        return "With one pair a ratio has no interval, so it may be chance."
    return (
        "A ratio is the geometric mean over the pairs; its 95% interval is Student's t over the logarithms of the "
        f"pairs' ratios ({plural(values['pairs'] - 1, 'degree')} of freedom)."
    )


def _step_sizes(values: Values) -> str:
    unit, ratio = values["unit"], units.ratio(values["ratio"])
    return (
        f"A step of {values['side']} has {ratio} the {unit} of a step of {values['base']}: figures per step are "
        f"not comparable, but {unit} per second are."
    )


def _interleaved(values: Values) -> str:
    first = values["first"]
    order = f"{first} always first" if first else "the sides take turns in going first"
    return f"The runs were interleaved, pair after pair; within a pair {order}."


def _more_time(values: Values) -> str:
    low, high = values["low"], values["high"]
    slower = ""
    if high < 1:
        low, high, slower = 1 / high, 1 / low, " slower"
    interval = f"{units.significant(low)} to {units.ratio(high)}{slower}"
    return f"{values['minutes']} more minutes would narrow it to about {interval}"


def _too_wide(values: Values) -> str:
    within = f"it may be anything from {units.ratio(values['low'])} to {units.ratio(values['high'])}"
    if "threads" not in values:
        return f"its steps differ too much to tell in this time: {within}"
    cores = f" for its {plural(values['cores'], 'core')}" if values["cores"] else ""
    wanted = f"other programs had {values['threads']:.2g} threads ready to run{cores}"
    return f"this machine was too busy to tell: {wanted}, and {within}"


_MOST_NAMES: Final = 5
"""Names of damaged values that a sentence lists."""
NOTICES: Final[Mapping[str, str | Callable[[Values], str]]] = {
    # a sentence that was made elsewhere: by a collector, a damaged table, a plug-in
    "text": "{text}",
    # why `try` did not measure a finding
    "no-knock-out": "its cause cannot be left out of the program",
    "wait-for-core": "it is a wait for cores and no work: free cores, or use fewer threads and workers",
    "line-of-other": "its line is also that of {rule}, which may gain more, and leaving it out would measure both",
    "not-of-steps": "it takes time of the run, not of its steps, which a trial measures",
    "no-line": "no line is known to cause it",
    "no-value": "the run does not tell the setting to try",
    "no-statement": "{file} has no statement in line {line}",
    "definition": "line {line} of {file} defines something, which cannot be skipped",
    "no-loop": "line {line} of {file} is in no loop",
    "training": "line {line} of {file} trains the model: without it nothing is left to measure",
    "loss": "gradients are computed through what line {line} of {file} makes",
    "leaves": "line {line} of {file} leaves its loop or function, which would then never end",
    "source-changed": "{file} has changed since the run was recorded: record it again",
    "source-unreadable": "{file} cannot be read: {error}",
    "not-reached": "line {line} of {file} was executed once at most",
    "loader-not-found": "the loader was not found: line {line} of {file} made no DataLoader",
    "files-in-memory": (
        "without the work of the loader it gained less than the recorded waits for files: the files may lie in memory "
        "now, as those do that the program writes itself"
    ),
    "no-loader": "the program made no DataLoader in the trial",
    "trial-failed": "{text}",
    "trial-too-short": "the program took too few steps within {seconds:.0f} s: allow more with --minutes",
    "more-time": _more_time,
    # what was damaged or missing when the run was loaded
    "run-not-ended": "the run never ended: its recorder was killed, or is still at work",
    "collector-failed": "collector {name} failed: {reason}",
    "process-stopped": "{source}: stopped writing before its end; its later records are missing",
    "metadata-damaged": "{file}: missing or damaged ({error})",
    "of-file": lambda values: f"{values['file']}: {describe(values['problem'])}",
    "torn-record": "{file}: {bytes} bytes of an incomplete record were dropped",
    "torn-line": "{file}: an incomplete last line was ignored",
    "damaged-line": "{file}: the damaged line {line} was ignored",
    "damaged-lines": "{file}: {lines:,} more damaged lines were ignored",
    "file-unreadable": "{text}",
    "impossible-records": "{file}: {records:,} records with impossible values were ignored",
    "values-left-out": lambda values: (
        f"{values['file']}: {listed(values['names'][:_MOST_NAMES])} "
        f"{'was' if len(values['names']) == 1 else 'were'} ignored because of an unexpected type"
    ),
    "lost-texts": "{file}: {records} records have lost their {column}",
    "events-without-time": "{file}: {events} events without a readable time were ignored",
    "trace-damaged": "{text}",
    "trials-damaged": "{file} is damaged, or of another version: remove it, and use `try` again",
    "all-steps-traced": (
        "every measured step lies in the window that torch's profiler traced: their times include the tracing"
    ),
    "only-first-steps-measured": (
        "torch's profiler traced all but the first steps: the {steps} measured steps are the first ones, in "
        "which compilers, caches and allocators still warm up; a longer run has steps after the trace, and "
        "level standard has no trace"
    ),
    # why something was not measured
    "no-step": "no step was completed",
    "only-warm-up": lambda values: (
        "the only step is warm-up" if values["steps"] == 1 else f"all {values['steps']} steps are warm-up"
    ),
    "level-light": "recorded at level light: record again with --level standard",
    "no-queue": "plain torch on the CPU has no queue of its own that could be busy or idle",
    "no-tokens": "the program does not report {unit}",
    "no-operators": "torch operators were not recorded in this run",
    "no-device-calls": "no device calls were recorded",
    "no-activities": "no activities of a device were recorded",
    "not-counted": "nothing in this run counted it",
    "no-gauge": "the program did not report this value",
    "no-gauge-in-steps": "no measured step reported this value",
    "not-finite": "not a finite number in {broken} of {steps} steps",
    "no-busy-time": "this device does not count its busy time, and there were no NVML samples",
    "no-cpu-times": "the steps have no CPU times",
    "no-device-threads": "no thread of this program acts as a device",
    "no-other-process": "no other process of the program was seen meanwhile",
    "other-processes-idle": "its other processes used less than {cores:g} cores",
    "no-memory-samples": "no memory samples were taken",
    "no-stack-samples": "no stack samples of the stepping thread",
    "no-call-sites": "no device call was recorded with its line",
    "no-breakdown-pass": "no breakdown pass was made of this side",
    "no-separate-breakdown-pass": "the breakdown comes from the run itself; there is no light run to compare it with",
    "no-light-step": "no light run measured a step",
    "one-batch-size": "all measured batches have about {items:.0f} items: what a larger one gives needs another size",
    "python-or-device-wait": "whether Python ran or waited for the device was not recorded",
    "no-idle-blame": "causes of idle time were not recorded",
    "not-recorded": "it was not recorded",
    "one-rank": "no other rank ended enough steps",
    "ranks-not-synchronous": (
        "the ranks do not wait for each other in every step, since their steps do not end together"
    ),
    "few-samples-before": "there are too few stack samples between the collectives to compare the ranks",
    "no-line-before": "no line has most of it",
    "not-in-runs": "not recorded in these runs",
    "only-nvml": lambda values: (
        f"not measured; by NVML, which does not see short gaps, a kernel ran {units.share(values['share'])} of the time"
    ),
    "large-graph": "a backward pass has more than {functions:,} functions, too many to search for unused gradients",
    "sharded-parameters": "parameters are sharded: gradients are computed for other tensors than the optimizer has",
    "no-activation-memory": "how much of the device's memory is free is not recorded",
    "trace-without-device": "the trace has no activity of the {device}: record it with ProfilerActivity.CUDA",
    "few-launches": lambda values: (
        f"the trace has only {values['launches']} {'launch' if values['launches'] == 1 else 'launches'} of kernels"
    ),
    # why there is no ratio
    "one-pair": "only one pair",
    "no-pairs": "no pair of runs",
    "not-measured-in": lambda values: f"not measured in {values['side']}: {describe(values['reason'])}",
    "not-measured-in-pairs": "not measured in any pair of runs",
    "zero": "{side} has 0: no ratio",
    WAITS_FOR_CORE: "{side} waited {share:.0%} of the time for a core that other programs had",
    "too-wide": _too_wide,
    "not-positive": "{side} has values that are not positive: no ratio",
    "not-comparable": lambda values: f"not comparable: {mismatches(values['mismatches'])}",
    # warnings
    "unrecorded-time": _unrecorded_time,
    "python-or-cuda-wait": (
        "{share:.1%} of the step is unknown: it is either Python or a wait inside CUDA, and "
        "device calls are not recorded in this run"
    ),
    "few-samples": lambda values: (
        f"what a step is spent on comes from {plural(values['samples'], 'stack sample')}, so the intervals are wide: "
        f"record about {values['seconds']:,} s more"
    ),
    "recorder-samples": (
        "{share:.0%} of the stack samples in the steps were taken in the recorder's own code and do not count: "
        "shares of lines and categories are less certain"
    ),
    "no-gil-samples": "no sample shows which thread held the GIL: Python and native work cannot be distinguished",
    "overlapping-regions": (
        "{count:,} regions or calls ended later than the one in which they began, and were cut at its end"
    ),
    "several-devices": _several_devices,
    "ended-early": _ended_early,
    "collector": "collector {name}: {reason}",
    "collector-dropped": "collector {name} dropped {dropped:,} of {records:,} records",
    "activities-dropped": "the device dropped {count:,} activity records: its idle time is overstated",
    "recording-time": ("recording itself took {share:.1%} of the steps, counted as python; it also slows calls down"),
    "nothing-measured": lambda values: f"nothing was measured: {describe(values['reason'])}",
    "few-steps": lambda values: (
        f"only {plural(values['steps'], 'measured step')}: at least {values['needed']} are needed for a mean"
    ),
    "short-window": "only {seconds:.3g} s were measured: with less than {needed:g} s, a single interruption is visible",
    "steps-excluded": "{steps:,} measured steps were ended by other threads or processes and are not in any figure",
    "drift": _drift,
    "spread": "step times spread by {spread:.0%} of their mean (standard deviation)",
    "other-machines": "other virtual machines took {share:.1%} of the CPU time of this one (steal)",
    "other-programs": "other programs used {used:.2g} of the machine's {cores:g} cores meanwhile",
    "counter-mismatch": "counter {name} says {counted:,.6g} per step, the recorded calls {recorded:,.6g}",
    "busy-mismatch": "the device counts {counted:.1%} of its time as busy, its recorded activities {recorded:.1%}",
    "debug-mode-syncs": _debug_mode_syncs,
    "runtime-calls-seen": "hooks saw {seen:,} of the {total:,} {kind} among the runtime's calls in the trace",
    # how a comparison was measured
    "pairs": _pairs,
    "blocks": lambda values: (
        f"Both programs were started {times(values['rounds'])} and ran in turn, some steps at a time, until enough of "
        "them were measured: all of this is about a part of each program. Times in which other programs kept one from "
        "a core are left out. The interval counts how much two starts of a program differ."
    ),
    "ratio-interval": _ratio_interval,
    "ratio-levels": lambda values: f"Ratios come from runs at level {' and '.join(values['levels'])}.",
    "breakdown-pass": lambda values: (
        "Breakdown, causes of idle time and flame graphs come from one more run of each side at level "
        f"{' and '.join(values['levels'])}; its times are not used in any ratio."
    ),
    "no-results-stated": (
        "What the programs compute was not compared, because they state no results (profiler.result)."
    ),
    "unstated-facts": lambda values: (
        f"The programs do not state {', '.join(values['facts'])}, so it was not checked whether the sides agree in "
        "this."
    ),
    "step-sizes": _step_sizes,
    "not-interleaved": (
        "The runs were not interleaved: a slow change of the machine can look like a difference of the sides."
    ),
    "interleaved": _interleaved,
}
