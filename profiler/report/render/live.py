"""Draws a snapshot of a running program for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from profiler.core.live import TRAINING, WORKER, GpuUse, Snapshot, ThreadUse
from profiler.core.metrics import counter_unit, find_counter
from profiler.core.units import NOT_MEASURED, rate, seconds, share, size, value
from profiler.report.render.drawing import Terminal, TextColumn, bar
from profiler.report.text import step_text

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

_LABEL: Final = 9
"""Columns for the label of a line."""
_BAR: Final = 20
"""Columns of a bar; a terminal narrower than _ROOM has no bars."""
_ROOM: Final = 78
_STATES: Final = {"R": "running", "S": "waiting", "D": "on disk", "T": "stopped", "t": "traced", "I": "idle"}
_MAX_THREADS: Final = 10
_MIN_THREADS: Final = 1
"""Threads shown however low the terminal is."""
_FRAME: Final = 6
"""Lines for the program, two empty ones, the head of the table, and the number of remaining threads."""
_HELPER: Final = 0.02
"""Share of a core below which a thread without a role is not listed but counted: pools, feeders of queues."""
_HOT: Final = 0.8
_WARM: Final = 0.3
"""Shares from which a bar gets a warmer colour."""


def live_view(
    snapshot: Snapshot,
    verdict: str,
    findings: Sequence[str] = (),
    *,
    width: int,
    height: int | None = None,
    unicode: bool = True,
    leave: str = "",
) -> Group:
    """Return program, verdict, findings, steps, CPU, memory, GPUs, workers, and the busiest threads.

    :param leave: how the view is left, in its last line.
    :param height: lines of the terminal; None: as many as ten threads take.
    """
    from rich.console import Group
    from rich.table import Table

    view = _View(width, unicode=unicode)
    lines = [
        *(("findings", view.text(line)) for line in findings),
        *(("steps", line) for line in view.steps(snapshot)),
        ("CPU", view.cpu(snapshot)),
        ("memory", view.memory(snapshot)),
        *view.workers(snapshot),
        *view.gpus(snapshot),
    ]
    threads = _MAX_THREADS
    if height is not None:
        room = max(1, width - _LABEL - 1)
        used = -(-len(verdict) // max(1, width)) + sum(max(1, -(-line.cell_len // room)) for _, line in lines)
        threads = max(_MIN_THREADS, height - used - _FRAME - bool(leave))
    facts = Table.grid(padding=(0, 1))
    facts.add_column(width=_LABEL, no_wrap=True)
    facts.add_column(overflow="fold")
    previous = ""
    for label, line in lines:
        facts.add_row(view.text("" if label == previous else label, "dim"), line)
        previous = label
    empty = view.text("")
    head = view.head(snapshot), view.text(verdict, "bold")
    last = (view.text(leave, "dim"),) if leave else ()
    return Group(*head, empty, facts, empty, view.threads(snapshot, threads), *last)


class _View(Terminal):
    """The parts of a live view."""

    def head(self, snapshot: Snapshot) -> Text:
        """Return program, PID, time and level, in one line as far as there is room."""
        watched = snapshot.watched
        facts = [f"pid {watched.pid}"]
        if snapshot.ran is not None:
            facts.append(_duration(snapshot.ran))
        facts.append(f"recorded at level {watched.level}" if watched.run else "not started with `profiler run`")
        line = self.text(watched.program, "bold")
        line.append_text(self.text("  " + ", ".join(facts), "dim"))
        line.no_wrap, line.overflow = True, "ellipsis" if self.unicode else "crop"
        return line

    def steps(self, snapshot: Snapshot) -> Iterator[Text]:
        steps = snapshot.steps
        if steps is None:
            yield self._unknown(snapshot, "steps")
            return
        if steps.rate is None or steps.step_time is None:
            yield self.text(f"one so far ({step_text(steps.step)})")
            return
        line = self.text(rate(steps.rate, "steps/s"), "bold")
        line.append_text(self.text(f", {seconds(steps.step_time)} a step"))
        if steps.tokens_per_s:
            line.append_text(self.text(f", {rate(steps.tokens_per_s, 'tokens/s')}"))
        yield line
        ranks = f", rank 0 of {steps.ranks}" if steps.ranks > 1 else ""
        yield self.text(f"{step_text(steps.step)}{ranks}; the last {seconds(steps.since_last)} ago", "dim")
        if steps.counters:
            yield self.text("in each: " + ", ".join(_counter(*item) for item in steps.counters.items()))

    def cpu(self, snapshot: Snapshot) -> Text:
        if snapshot.cpu is None:
            return self._unknown(snapshot, "cpu")
        line = self.text(f"{snapshot.cpu:.2f} of {snapshot.cores:g} cores")
        return self._with_bar(line, snapshot.cpu / max(snapshot.cores, 1e-9))

    def memory(self, snapshot: Snapshot) -> Text:
        number = len(snapshot.processes)
        return self.text(f"{size(snapshot.rss)} in {number} process{'es' if number != 1 else ''}")

    def workers(self, snapshot: Snapshot) -> Iterator[tuple[str, Text]]:
        workers = snapshot.workers
        if workers:
            used = [worker.cpu for worker in workers if worker.cpu is not None]
            cpu = f", {sum(used):.2f} cores, the busiest {share(max(used))}" if used else ""
            yield "workers", self.text(f"{len(workers)}{cpu}, {size(sum(worker.rss for worker in workers))}")

    def gpus(self, snapshot: Snapshot) -> Iterator[tuple[str, Text]]:
        for gpu in snapshot.gpus:
            line = self.text(f"{gpu.name}, ")
            line.append_text(self.text(_measured(gpu.utilization, share), "bold"))
            yield f"GPU {gpu.index}", self._with_bar(line, gpu.utilization)
            yield f"GPU {gpu.index}", self.text(_gpu_facts(gpu))
        if "gpus" in snapshot.unknown:
            if snapshot.gpus:
                yield "", self.text(snapshot.unknown["gpus"], "dim")
            else:
                yield "GPU", self._unknown(snapshot, "gpus")

    def _unknown(self, snapshot: Snapshot, name: str) -> Text:
        return self.text(f"not measured: {snapshot.unknown.get(name, 'no reason was recorded')}", "dim italic")

    def _with_bar(self, line: Text, part: float | None) -> Text:
        if part is not None and self.width >= _ROOM:
            line.append("  ")
            line.append_text(self._bar(part))
        return line

    def _bar(self, part: float | None) -> Text:
        if part is None:
            return self.text("")
        colour = "red" if part >= _HOT else "yellow" if part >= _WARM else "green"
        return self.text(bar(part, _BAR, unicode=self.unicode), colour)

    def threads(self, snapshot: Snapshot, limit: int) -> Table:
        """Return the busiest threads in rows."""
        workers = {worker.pid for worker in snapshot.workers}

        def name(use: ThreadUse) -> Text:
            return self.text(use.name or f"thread {use.tid}", "bold" if use.role == TRAINING else "")

        def is_helper(use: ThreadUse) -> bool:
            return use.tid != use.pid and not use.role and use.cpu is not None and use.cpu < _HELPER

        columns: list[tuple[TextColumn, bool, Callable[[ThreadUse], Text | str]]] = [
            (_column("thread"), True, name),
            (_column("of"), True, lambda use: WORKER if use.pid in workers else use.role),
            (_column("process", number=True), False, lambda use: str(use.pid)),
            (_column("CPU", number=True), True, lambda use: "" if use.cpu is None else share(use.cpu)),
            (_column("", width=_BAR), False, lambda use: self._bar(use.cpu)),
            (_column("now"), True, lambda use: _STATES.get(use.state, use.state)),
        ]
        if self.width < _ROOM:
            columns = [entry for entry in columns if entry[1]]
        busy = [use for use in snapshot.threads if not is_helper(use)][:limit]
        rows: list[list[Text | str]] = [[cell(use) for _, _, cell in columns] for use in busy]
        remaining = len(snapshot.threads) - len(busy)
        if remaining > 0:
            rows.append([self.text(f"and {remaining:,} more", "dim")])
        return self.table([column for column, _, _ in columns], rows)


def _column(title: str, *, number: bool = False, width: int | None = None) -> TextColumn:
    return TextColumn(title, number, wrap=False, overflow="ellipsis", width=width)


def _gpu_facts(gpu: GpuUse) -> str:
    total = f" of {size(gpu.memory_total)}" if gpu.memory_total else ""
    memory = f"memory {_measured(gpu.memory_used, size)}{total}"
    power = f"power {_measured(gpu.power, _watts)}" + (f" of {_watts(gpu.power_limit)}" if gpu.power_limit else "")
    if gpu.throttle is None:
        return f"{memory}, {power}, throttling not measured"
    return f"{memory}, {power}, {'throttled: ' + ', '.join(gpu.throttle) if gpu.throttle else 'not throttled'}"


def _measured(number: float | None, write: Callable[[float], str]) -> str:
    return NOT_MEASURED if number is None else write(number)


def _watts(number: float) -> str:
    return f"{number:.0f} W"


def _duration(number: float) -> str:
    """Write 12 s, 2 min 05 s, 3 h 02 min: it changes once a second."""
    if number < 3600:
        return seconds(number) if number >= 60 else f"{number:.0f} s"
    minutes = round(number / 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def _counter(name: str, amount: float) -> str:
    counter = find_counter(name)
    noun = counter.noun() if counter else name.removesuffix("_bytes").replace("_", " ")
    return f"{noun} {value(amount, counter_unit(name))}"
