"""A gate's result as GitHub-flavoured Markdown: the summary of a job, short first, the rounds folded away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from profiler.check.model import BASE, CANDIDATE, FAIL, INCONCLUSIVE, PASS, CounterLine, GateResult, Round, Throughput
from profiler.check.outputs import said, words
from profiler.check.outputs import text as sentences
from profiler.check.outputs.rounds import OF_COLUMNS, said_by_rounds, typical
from profiler.core import units
from profiler.report.render.markdown import escape

_ALERTS: Final = {PASS: "TIP", INCONCLUSIVE: "WARNING", FAIL: "CAUTION"}
"""GitHub's and GitLab's coloured quotes; elsewhere they are plain quotes."""


def render(result: GateResult, *, details: bool = True) -> str:
    """The summary; without `details` what is folded away is left out."""
    parts = [f"## Performance check: {text(result.state)}"]
    verdict = f"> [!{_ALERTS.get(result.state, 'NOTE')}]\n> **{text(result.state)}**: {text(said.headline(result))}"
    parts.append(verdict + (f"\n>\n> {text(result.explanation)}" if result.explanation else ""))
    parts.append(_sides(result))
    if result.counters_state is not None:
        parts += _counters(result)
    if result.throughput is not None:
        parts += _throughput(result, result.throughput)
    if warnings := sentences.warnings(result):
        parts += ["### Warnings", _items(warnings)]
    if result.notes:
        parts += ["### Notes", _items(sentences.notes(result))]
    if details:
        parts += _details(result)
    return "\n\n".join(part for part in parts if part) + "\n"


def text(value: str) -> str:
    """Text that stays text, in a table's cell too, and calls nobody."""
    return escape(value).replace("@", "@&#8203;")


def _items(items: Iterable[str]) -> str:
    return "\n".join(f"- {text(item)}" for item in items)


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    """A table; columns of `numbers` align right."""
    rule = ["---:" if at in numbers else "---" for at in range(len(head))]
    lines = [[*map(text, head)], rule, *([*map(text, row)] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _sides(result: GateResult) -> str:
    if result.mode == "baseline":
        return f"Baseline: {text(said.held_against(result))}"
    return f"Base: {text(said.held_against(result))}. Candidate: {text(said.side(result.candidate))}."


def _head(title: str, state: str, reason: str) -> str:
    return f"### {title}: {text(state)}" + (f"\n\n{text(reason)}" if reason else "")


def _counters(result: GateResult) -> Iterator[str]:
    yield _head("Counters per step", result.counters_state or "", sentences.untold_counters_reason(result))
    shown = [line for line in result.counters if line.state != PASS or words.changed(line)]
    if shown:
        rows = [(line.state, words.title(line), *words.row(line), sentences.reasons(line.reasons)) for line in shown]
        columns = ("", "Counter", said.base_title(result), "Candidate", "Allowed", "")
        yield _grid(columns, rows, (2, 3, 4))
    sites = [_site(line, at) for line in shown for at in range(len(line.changes))]
    if sites:
        yield "\n".join(sites)
    if meant := said.if_meant(result):
        yield text(f"{meant[0].upper()}{meant[1:]}")
    rest = len(result.counters) - len(shown)
    if rest:
        yield f"{rest:,} other{'s' * (rest != 1)} unchanged." if shown else f"All {rest:,} unchanged."


def _site(line: CounterLine, at: int) -> str:
    change = line.changes[at]
    bold = "**" if line.state == FAIL else ""
    where = f"{text(words.rise(change))} at {text(words.place(change))}"
    return f"- {bold}{where}{bold}{text(words.inside(change))}"


def _throughput(result: GateResult, throughput: Throughput) -> Iterator[str]:
    yield _head("Throughput", throughput.state, sentences.untold_speed_reason(result))
    rows = [
        (
            said.line_state(throughput, line),
            line.name,
            words.slowdown(line.slowdown),
            words.interval(line.low, line.high),
            f"{line.rounds:,}",
            words.percent(line.smallest),
            said.more(result, line),
        )
        for line in throughput.lines
    ]
    columns = ("", "", "Slow-down", "Interval", "Rounds", f"Would have been a FAIL from ({said.POWER})", "")
    if rows:
        yield _grid(columns, rows, (2, 3, 4, 5))
    if control := said.control(throughput):
        yield text(control)


def _details(result: GateResult) -> Iterator[str]:
    if result.throughput is not None and result.throughput.rounds:
        head = ("Round", "Kind", "Slots", "Base, step", "Candidate, step", "Slow-down", "Load", "Steal", "Held down")
        rows = (_round(one, slower) for one, (slower, _) in said_by_rounds(result.throughput))
        yield _folded("Every round", _grid(head, rows, (0, 3, 4, 5, 6, 7)), text(OF_COLUMNS))
    machine = [*result.machine.items(), ("took", words.duration(result.seconds)), ("at", result.created_at)]
    for label, side in (("base", result.base), ("candidate", result.candidate)):
        machine += [(f"{label}: command", side.command), (f"{label}: speed, gates nothing", said.side_times(side))]
    table = _grid(("", ""), [pair for pair in machine if pair[1]], ())
    yield _folded("Machine, commands and limits", table, _items(said.limits(result)))


def _folded(title: str, *bodies: str) -> str:
    return "\n\n".join((f"<details><summary>{text(title)}</summary>", *bodies, "</details>"))


def _round(one: Round, slower: float | None) -> tuple[str, ...]:
    steps = [typical(one, side) for side in (BASE, CANDIDATE)]
    conditions = one.conditions
    cores = "" if conditions.cores is None else f" on {conditions.cores:,} cores"
    return (
        f"{one.number}",
        words.ROUNDS.get(one.kind, one.kind),
        ", ".join(words.SIDES.get(slot, slot) for slot in one.slots),
        *(units.NOT_MEASURED if step is None else units.seconds(step) for step in steps),
        words.percent(slower),
        units.NOT_MEASURED if conditions.load is None else units.significant(conditions.load, 2) + cores,
        units.NOT_MEASURED if conditions.steal is None else units.share(conditions.steal),
        ", ".join(conditions.throttled) or "–",
    )
