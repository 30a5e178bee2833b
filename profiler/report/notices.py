"""Makes the sentence of every `Notice` of a run, and says how the results and the facts of compared sides differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from profiler.analyse.model.comparison import WAITS_FOR_CORE, Mismatch, ResultComparison, ResultDifference
from profiler.core import units
from profiler.core.errors import Notice
from profiler.report.text import listed, plural, times, too_few

Values = Mapping[str, Any]
NO_REASON: Final = "no reason was recorded"


def describe(notice: Notice | None) -> str:
    """Return the sentence of a notice; empty for None."""
    if notice is None:
        return ""
    template = NOTICES[notice.code]
    return template.format(**notice.values) if isinstance(template, str) else template(notice.values)


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
    """Return all of them in one line."""
    return "; ".join(map(mismatch, facts))


def _unrecorded_time(values: Values) -> str:
    what = {"calls": "any region or call", "anything": "anything recorded"}[values["of"]]
    samples = f"{too_few(values['samples'])} ({values['needed']} needed)" if values["samples"] else "no stack sample"
    samples += " to say" if values["samples"] else " says"
    return f"{100 * values['share']:.1f}% of the step is outside of {what}, and {samples} what ran there"


def _several_devices(values: Values) -> str:
    busy = values["busy"]
    shares = ", ".join(f"device {number} {100 * share:.0f}%" for number, share in busy)
    return (
        f"one process used {len(busy)} devices, busy {shares}: causes of idle time cover only the time in "
        "which all of them were idle"
    )


def _ended_early(values: Values) -> str:
    code = "" if values["exit_code"] is None else f" (exit code {values['exit_code']})"
    ended = "failed" if values["state"] == "failed" else "was interrupted"
    return f"the run {ended}{code}, and the recording ends there"


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
    lengths = (f"{label} {'none' if length is None else units.seconds(length)}" for label, length in values["seconds"])
    pairs = plural(values["pairs"], "pair")
    return f"{pairs} of runs; measured time of a run, warm-up not counted: {', '.join(lengths)}."


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
    "wait-for-core": "the program waits for cores here: free cores, or use fewer threads and workers",
    "line-of-other": "{rule} is about the same line and may gain more; a trial would measure both",
    "not-of-steps": "it takes time outside of the steps, and a trial measures steps",
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
        "without the work of the loader, the program gained less than the recorded waits for files; "
        "its files may be in memory by now"
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
    "one-batch-size": "all measured batches have about {items:.0f} items: record larger ones to tell what they give",
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
        "{share:.0%} of the stack samples in the steps show the recorder's own code and are left out, so "
        "shares of lines and categories are less certain"
    ),
    "no-gil-samples": "no sample shows which thread held the GIL: Python and native work cannot be distinguished",
    "overlapping-regions": ("{count:,} regions or calls outlasted the one that contains them, and were cut at its end"),
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
    "steps-excluded": "other threads or processes ended {steps:,} measured steps, which no figure includes",
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
        f"Both programs were started {times(values['rounds'])} and ran in turn, some steps at a time, until enough "
        "steps were measured. All of this is about a part of each program. Times in which other programs kept one from "
        "a core are left out. The interval counts how much two starts of a program differ."
    ),
    "ratio-interval": _ratio_interval,
    "ratio-levels": lambda values: f"Ratios come from runs at level {' and '.join(values['levels'])}.",
    "breakdown-pass": lambda values: (
        "Breakdown, causes of idle time and flame graphs come from one more run of each side at level "
        f"{' and '.join(values['levels'])}. No ratio uses its times."
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
