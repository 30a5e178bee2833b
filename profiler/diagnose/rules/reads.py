"""Waits for the device, and what the host reads: values, shapes, metrics, logs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from profiler.analyse.model.finding import Confidence, KnockOut
from profiler.core.syntax import line_nodes
from profiler.diagnose.device import program_blame
from profiler.diagnose.model import NAMED
from profiler.diagnose.rule import MAX_SITES, Claim, Cost, Order, Rule, StepCosts, exactly, rule, take, total_seconds
from profiler.diagnose.rules._lines import frame_costs, frame_sites, lines_above, metric_lines
from profiler.run.model import Site

MANY: Final = 10.0
"""Reads per step at one line from which it reads element by element. A choice: a loop over what a step computes reads
tens to thousands of elements; losses, norms and metrics are a few values."""
_READS: Final = ("sync", "d2h")
_OF_OPERATIONS: Final = {
    "synchronize": "left-over-synchronize",
    "empty_cache": "empty-cache",
    **dict.fromkeys(("mask index", "nonzero", "masked_select", "unique"), "shape-from-values"),
}
"""End of the operation of calls that wait, but read no number -> the rule about them."""
_WAITS: Final = ("sync", "copy")


@dataclass(slots=True)
class Read:
    """A line that reads values from the device."""

    site: Site
    calls: float
    """Reads per step."""
    operation: str
    """As the user wrote it; it may be empty."""
    library: str = ""
    """The source of the line of a library that reads them."""
    categories: dict[str, float] = field(default_factory=dict)
    """Category -> seconds per step in which the device is idle in and after the reads."""

    @property
    def seconds(self) -> float:
        """Return the seconds per step in all of them."""
        return sum(self.categories.values())


def rule_of_waits(calls: float, operation: str) -> str:
    """Return the name of the rule about the waits at a line.

    :param calls: waits per step at the line.
    :param operation: as the user wrote it; it may be empty.
    """
    for end, name in _OF_OPERATIONS.items():
        if operation.endswith(end):
            return name
    return "per-element-reads" if calls >= MANY else "hidden-sync"


def waits_with_idle_time(costs: StepCosts, rule: str) -> list[Read]:
    """Return the waits for the device that this rule is about, and after which it is idle: the longest idle time
    first."""
    reads: dict[Site, Read] = {}
    for call in costs.analysis.call_sites:
        if call.kind in _READS and (call.kind == "sync" or call.blocked_per_step > 0):
            read = reads.setdefault(
                call.site, Read(call.site, 0.0, call.operation, call.library.source if call.library else "")
            )
            read.calls += call.calls_per_step
    for row in program_blame(costs.analysis):
        if row.site is not None and row.site in reads and row.category in _WAITS:
            idle = reads[row.site].categories
            idle[row.category] = idle.get(row.category, 0.0) + row.seconds_per_step
    idle_reads = (
        read for read in reads.values() if read.categories and rule_of_waits(read.calls, read.operation) == rule
    )
    return sorted(idle_reads, key=lambda read: -read.seconds)


_READ_IN_LINE: Final = frozenset(("item", "tolist", "numpy", "cpu", "float", "int", "bool", "print", "format", "str"))
"""Functions and methods of a line that read a value themselves."""
_DECIDES: Final = (
    "The program decides by this value, so it cannot read it less often. Compute on the device what depends on it, as "
    "with torch.where() or torch.clamp(), or take the number from the host where it is known there."
)
_OF_CALLED_FUNCTION: Final = (
    "A function that this line calls reads the value. See whether one of its arguments makes that needless."
)
_OF_CALLS: Final = (
    (
        re.compile(r"^repeat_interleave |^(?!.*output_size)(?!.*\.(item|tolist|cpu)\().*\brepeat_interleave\b"),
        (
            "Pass output_size, the number of rows of the result, if the program knows it from a shape or on the host: "
            "then repeat_interleave() reads nothing."
        ),
    ),
    (
        re.compile(r"\bclip_grad\w*\(.*error_if_nonfinite\s*=(?!\s*False)"),
        (
            "Leave error_if_nonfinite out, with which the host reads the norm in each step. Test the norm where it is "
            "logged and before each checkpoint, and stop there: until then a gradient that is not finite changes the "
            "weights."
        ),
    ),
    (
        re.compile(r"^bool .*(?i:encoder|transformer)\w*\("),
        (
            "torch's TransformerEncoder reads its mask to learn whether it is causal. Pass is_causal=True beside the "
            "mask if it is."
        ),
    ),
    (
        re.compile(r"(?i)scaler\w*\.(step|update)\("),
        (
            "GradScaler reads in each step whether a gradient overflowed. With bfloat16 no scaler is needed: "
            "GradScaler(enabled=False), or none."
        ),
    ),
    (
        re.compile(r"^(_foreach_)?(r?sub|add|add[bcmr]\w+|baddbmm|index_add)_? "),
        (
            "torch takes alpha, beta and value as numbers, and reads a tensor that is given: multiply by the tensor "
            "instead, on the device, as in a - b * factor."
        ),
    ),
    (
        re.compile(r"^item .*\.(mul|div)_?\([^=]*\.item\(\)"),
        (
            "Leave out item() where both tensors are on the device: torch computes with a tensor of one element as "
            "with a number, and nothing is read. Outside of the graph of gradients, write detach() in its place."
        ),
    ),
    (
        re.compile(r"^slice "),
        (
            "Take the bounds of slices from the host, as a list of numbers: with tensors on the device the host waits "
            "for each bound. torch.split() with a list of sizes makes all parts at once."
        ),
    ),
    (
        re.compile(r"^index "),
        (
            "Index with a tensor of one dimension, as in x[index.reshape(1)], whose result has one dimension more: the "
            "host reads only a number."
        ),
    ),
)
"""Calls in a line that read values -> what helps; from the documentation of these functions, and torch's source."""


_BUILT_IN: Final = re.compile(r"(?<![\w.])(max|min|sorted|any|all)\(")
_OF_BUILT_IN: Final = (
    "Use the tensor's own method, such as tensor.amax() or tensor.any(), or values that are on the host already: "
    "Python's built-in functions compare the elements one by one, and wait for each."
)


def cure_of_read(operation: str, source: str, library: str = "") -> str | None:
    """Return what helps where a line reads a value of the device, as far as its source tells; None: nothing more is
    known.

    :param operation: what reads the value: `item`, `bool`, ...
    :param library: the source of the line of a library that reads it, where the line calls a library.
    """
    if operation in ("", "print") or operation.endswith(tuple(_OF_OPERATIONS)):
        return None
    if cure := (library and _cure_in(operation, library)) or _cure_in(operation, source):
        return cure
    nodes = list(_nodes(source))
    calls = {ast.unparse(node.func).rpartition(".")[2] for node in nodes if isinstance(node, ast.Call)}
    is_texts = any(isinstance(node, ast.JoinedStr) for node in nodes)
    return _OF_CALLED_FUNCTION if calls and calls.isdisjoint(_READ_IN_LINE) and not is_texts else None


def _cure_in(operation: str, source: str) -> str | None:
    """Return what the source of the line that reads the value itself tells."""
    for pattern, cure in _OF_CALLS:
        if pattern.search(f"{operation} {source}"):
            return cure
    if operation == "bool" and _BUILT_IN.search(source):
        return _OF_BUILT_IN
    parts = (part for node in _nodes(source) for part in _decisions(node))
    return _DECIDES if any(_may_read(part, operation) for part in parts) else None


def _nodes(source: str) -> Iterable[ast.AST]:
    return line_nodes(re.sub(r"^elif\b", "if", source))


def _decisions(node: ast.AST) -> Iterable[ast.AST]:
    """Return the parts of a statement by whose value the program decides."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.Assert(test=test) | ast.IfExp(test=test):
            return [test]
        case ast.BoolOp(values=values):
            return values[:-1]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [operand]
        case ast.comprehension(ifs=ifs):
            return ifs
        case ast.Call(func=ast.Name("range" | "bool" | "any" | "all" | "filter"), args=args):
            return args
        case ast.Call(func=ast.Attribute(attr="index" | "count" | "remove"), args=args) if args:
            return [node]
        case ast.Compare(ops=ops) if len(ops) > 1 or isinstance(ops[0], (ast.In, ast.NotIn)):
            return [node]
    return []


def _may_read(part: ast.AST, operation: str) -> bool:
    """Return whether a part of a line can be what reads the value: a truth or an index has no call of its own."""
    if operation in ("bool", "int"):
        return True
    names = {ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(part) if isinstance(node, ast.Call)}
    return operation in names


def sync_claim(costs: StepCosts, rule: str) -> Claim | None:
    """Return the idle time in and after the waits for the device that this rule is about."""
    reads = waits_with_idle_time(costs, rule)
    if not reads:
        return None
    sites = tuple(read.site for read in reads[:MAX_SITES])
    first = reads[0]
    cure = cure_of_read(first.operation, first.site.source, first.library)
    values = {"calls": sum(read.calls for read in reads), "operation": first.operation or None, "cure": cure}
    return Claim(idle_costs(reads), sites, values)


def idle_costs(reads: Iterable[Read]) -> dict[str, Cost]:
    """Return the idle time of these reads, as the costs of a claim."""
    total: dict[str, float] = {}
    for read in reads:
        for category, seconds in read.categories.items():
            total[category] = total.get(category, 0.0) + seconds
    return {category: exactly(seconds) for category, seconds in total.items()}


def _rule_of_waits(name: str, *words: Any, **options: Any) -> Rule:
    """Return a rule about the idle time in and after the waits of one kind, which differs from the others in its
    words."""
    return rule(name, *words, **options, knock_out=KnockOut.LINE)(lambda costs: sync_claim(costs, name))


hidden_sync = _rule_of_waits(
    "hidden-sync",
    "The host waits for the device in the middle of each step",
    (
        "Waits per step: {calls:number}, mostly at {site:place}.",
        "The line reads a tensor: {operation}.",
        "The device is idle {share:share} of the time in and after them.",
    ),
    "Keep the value on the device as a tensor, and read it every 50th step or so, after the next step was launched.",
    fixes=("{cure}",),
)


_LEAST_LINES: Final = 2
"""Lines that read in each step from which one read could take the place of all."""
_EACH_STEP: Final = 0.9
"""Reads per step of a line that reads in each step, but perhaps not in the last one that was recorded."""


@rule(
    "several-syncs",
    "The host waits for the device several times in each step, where once would do",
    ("{lines:count} lines read values from the device, {calls:n time} per step.",),
    "Collect the values in one tensor, as with torch.stack, and read that once at the end of the step.",
    code="values = torch.stack([loss, norm]).tolist()",
)
def several_syncs(costs: StepCosts) -> Claim | None:
    """The idle time in and after the reads of all lines but the one for which the device is idle longest: that one
    remains."""
    reads = [read for read in waits_with_idle_time(costs, "hidden-sync") if read.calls >= _EACH_STEP]
    if len(reads) < _LEAST_LINES:
        return None
    values = {"lines": len(reads), "calls": sum(read.calls for read in reads)}
    return Claim(idle_costs(reads[1:]), tuple(read.site for read in reads[:MAX_SITES]), values)


per_element_reads = _rule_of_waits(
    "per-element-reads",
    "A loop reads elements from the device one by one",
    (
        "It waits for the device {calls:count} times per step, mostly at {site:place}.",
        "The device is idle {share:share} of the time in and after them.",
    ),
    "Compute on the device with whole tensors, and read the result once per step, or less often.",
    fixes=("{cure}",),
)


shape_from_values = _rule_of_waits(
    "shape-from-values",
    "The host waits to learn the shape of a result, which depends on values on the device",
    (
        "Waits per step: {calls:number}, mostly at {site:place}.",
        "The operation is {operation}.",
        "The device is idle {share:share} of the time in and after them.",
    ),
    "Where the mask keeps most rows, keep the shape: torch.where(mask, x, 0), a product with the mask, or weights of "
    "the loss. In a loop over groups, such as experts, sort by group once. Then one read is left: "
    "torch.bincount(groups, minlength=n).tolist().",
)


left_over_synchronize = _rule_of_waits(
    "left-over-synchronize",
    "A call of synchronize makes the host wait for the device",
    ("Calls per step: {calls:number}.", "The device is idle {share:share} of the time in and after it."),
    "Remove it: what the training computes is right without it. A stopwatch needs torch.cuda.Event(enable_timing=True) "
    "in its place.",
)


_ALLOCATES: Final = re.compile(r"^(cuda|hip|cu)(Malloc|Mem(Alloc|Create|Release)|(Mem)?Free(?!Host))(?!Host)")
"""Calls that get memory of a device from the driver, or give it back."""
_GROWING: Final = re.compile(r"^cuMem(Create|Release)")
"""Calls of segments that can grow already."""


@rule(
    "empty-cache",
    "Memory of the device is given back and allocated again and again",
    ("Calls of {names} leave the device without work {calls:n time} per step, {share:share} of the time.",),
    "Do not call torch.cuda.empty_cache() in the loop: torch reuses memory that it keeps, and gives it back by itself "
    "before an allocation fails. If nothing calls it, the memory is fragmented or nearly full: use less of it.",
    fixes=(
        (
            "Do not call torch.cuda.empty_cache() in the loop: torch reuses memory that it keeps, and gives it back by "
            "itself before an allocation fails. If nothing calls it, the memory is fragmented or nearly full: use less "
            "of it, or start the program with {setting}."
        ),
    ),
    knock_out=KnockOut.LINE,
)
def empty_cache(costs: StepCosts) -> Claim | None:
    """The idle time in and after calls of empty_cache. In a trace, that in calls which allocate or free memory, in step
    after step, whatever the reason."""
    claim = sync_claim(costs, "empty-cache")
    if claim is not None or not costs.analysis.is_trace:
        return claim and replace(claim, values={**claim.values, "names": "torch.cuda.empty_cache", "setting": None})
    rows = [row for row in program_blame(costs.analysis) if _ALLOCATES.search(row.subject) and not row.is_once]
    # AMD's driver has no segments that grow
    has_setting = not any(row.subject.startswith("hip") or _GROWING.search(row.subject) for row in rows)
    setting = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" if has_setting else None
    names = ", ".join(dict.fromkeys(row.subject for row in rows[:MAX_SITES]))
    values = {"names": names, "calls": sum(row.gaps_per_step for row in rows), "setting": setting}
    sites = tuple(row.site for row in rows if row.site is not None)
    return Claim({"launch": exactly(sum(row.seconds_per_step for row in rows))}, sites[:MAX_SITES], values)


_WORK: Final = ("compute", "framework", "python")


@rule(
    "metrics-in-loop",
    "Metrics or statistics take time in each step",
    (
        "{share:share} of each step computes metrics or other numbers that the training does not use.",
        "Numbers that the host reads there per step: {reads:number}.",
    ),
    "Compute metrics and statistics every 50th step or so, or once at the end of an epoch.",
    threshold=NAMED,  # some metrics are a usual part of a step
    order=Order.SHAPE,
    is_alternative=True,
    knock_out=KnockOut.STATEMENT,
    is_of_code=True,
)
def metrics_in_loop(costs: StepCosts) -> Claim | None:
    """The time in functions of libraries for metrics, and at lines that compute numbers which the host reads."""
    lines, reads = metric_lines(costs)
    claimed = {name: cost for name, cost in frame_costs(lines).items() if name in _WORK}
    if not claimed:
        return None
    # whether the program decides by these numbers, as a search of a step size does, is not known
    return Claim(claimed, frame_sites(lines), {"reads": reads or None}, is_most=True, confidence=Confidence.MEDIUM)


def _lazy_call(sites: Iterable[Site]) -> str | None:
    """Return the call of a logger at the first of these lines that gives it an f-string, with an argument instead."""
    for site in sites:
        for node in line_nodes(site.source):
            match node:
                case ast.Call(func=ast.Attribute(attr="debug" | "info"), args=[ast.JoinedStr(), *_]):
                    return f'{ast.unparse(node.func)}("%s", x)'
    return None


@rule(
    "logging-in-loop",
    "Logging takes time",
    (
        "{share:share} of each step goes to logging.",
        "{texts:share} of each step makes texts of tensors. An f-string makes them even if its message is not shown.",
    ),
    "Log every 50th step or so, and keep sums of what is logged in between as tensors.",
    fixes=(
        (
            "Pass values as arguments, as in {lazy}, which makes no text of a message that is not shown, or ask "
            "isEnabledFor() first. Log what is shown every 50th step or so."
        ),
    ),
    code="if step % 50 == 0:",
    knock_out=KnockOut.LINE,
    is_of_code=True,
)
def logging_in_loop(costs: StepCosts) -> Claim | None:
    """The time in logging, and in the texts of tensors."""
    claimed = take(costs, "log")
    texts = lines_above(costs, lambda each: each.name == "_str" and each.file == "torch/_tensor_str.py")
    sites = costs.sites("log")
    values = {"texts": costs.share(total_seconds(frame_costs(texts))) or None, "lazy": _lazy_call(sites)}
    return Claim(claimed, sites, values) if claimed else None
