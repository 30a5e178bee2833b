"""Draws one moment of a running program for the terminal: a snapshot in, something that rich can print out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from profiler.core.live import TRAINING, WORKER, GpuUse, Snapshot, ThreadUse
from profiler.core.units import ASCII, NOT_MEASURED, count, rate, seconds, share, size
from profiler.report.quantities import plain
from profiler.report.render.text import bar
from profiler.report.text import step_text

if TYPE_CHECKING:
    from rich.console import Group, JustifyMethod, OverflowMethod
    from rich.table import Table
    from rich.text import Text

_ASCII: Final = str.maketrans({**ASCII})
_LABEL: Final = 8
"""Columns for what a line is about."""
_BAR: Final = 20
"""Columns of a bar where there is room, below _ROOM there is none for it."""
_ROOM: Final = 78
_STATES: Final = {"R": "running", "S": "waiting", "D": "on disk", "T": "stopped", "t": "traced", "I": "idle"}
_FEWEST: Final = 1
"""Threads shown however low the terminal is."""
_FRAME: Final = 6
"""Lines for the program, two empty ones, the head of the table, and how many more threads there are."""
_HELPING: Final = 0.02
"""Share of a core below which a thread beside the main one is not listed but counted."""
_HOT: Final = 0.8
_WARM: Final = 0.3
"""Shares from which a bar is drawn in a warmer colour: for the eye only."""


def live_view(
    snapshot: Snapshot, verdict: str, *, width: int, height: int | None = None, unicode: bool = True, leave: str = ""
) -> Group:
    """Program, verdict, steps, CPU, memory, GPUs, workers, and the busiest threads.

    :param leave: how the view is left, where it stays.
    :param height: lines that there are; None: as many as it takes, for ten threads.
    """
    from rich.console import Group

    pencil = _Pencil(width, unicode=unicode)
    head = pencil.head(snapshot)
    lines = pencil.facts(snapshot)
    most = 10
    if height is not None:
        said = -(-len(verdict) // max(1, width))
        taken = said + sum(pencil.height(line) for _, line in lines) + _FRAME + bool(leave)
        most = max(_FEWEST, height - taken)
    empty = pencil.text("")
    parts = (head, pencil.text(verdict, "bold"), empty, pencil.grid(lines), empty, pencil.threads(snapshot, most))
    return Group(*parts, *((pencil.text(leave, "dim"),) if leave else ()))


class _Pencil:
    """What all parts need: the width, and whether there is more than ASCII."""

    def __init__(self, width: int, *, unicode: bool) -> None:
        self._width = width
        self._unicode = unicode

    def text(self, text: str, style: str = "") -> Text:
        from rich.text import Text

        text = plain(text)
        if not self._unicode:
            text = text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
        return Text(text, style)

    def head(self, snapshot: Snapshot) -> Text:
        """Program, PID, time and level, in one line as far as there is room."""
        watched = snapshot.watched
        facts = [f"pid {watched.pid}"]
        if snapshot.ran is not None:
            facts.append(_whole_seconds(snapshot.ran))
        facts.append(f"recorded at level {watched.level}" if watched.run else "not recorded by us")
        line = self.text(watched.program, "bold")
        line.append_text(self.text("  " + ", ".join(facts), "dim"))
        line.no_wrap, line.overflow = True, "ellipsis" if self._unicode else "crop"
        return line

    def facts(self, snapshot: Snapshot) -> list[tuple[str, Text]]:
        """The lines between the verdict and the threads: what it is about, and the figures."""
        return [
            *(("steps", line) for line in self._steps(snapshot)),
            ("CPU", self._cpu(snapshot)),
            ("memory", self._memory(snapshot)),
            *self._workers(snapshot),
            *self._gpus(snapshot),
        ]

    def height(self, line: Text) -> int:
        return max(1, -(-line.cell_len // max(1, self._width - _LABEL - 1)))

    def grid(self, lines: list[tuple[str, Text]]) -> Table:
        from rich.table import Table

        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=_LABEL, no_wrap=True)
        grid.add_column(overflow="fold")
        before = ""
        for label, line in lines:
            grid.add_row(self.text("" if label == before else label, "dim"), line)
            before = label
        return grid

    def _steps(self, snapshot: Snapshot) -> Iterator[Text]:
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
            told = ", ".join(f"{_counter(name)} {_amount(name, value)}" for name, value in steps.counters.items())
            yield self.text(f"in each: {told}")

    def _cpu(self, snapshot: Snapshot) -> Text:
        if snapshot.cpu is None:
            return self._unknown(snapshot, "cpu")
        line = self.text(f"{snapshot.cpu:.2f} of {snapshot.cores:g} cores")
        return self._with_bar(line, snapshot.cpu / max(snapshot.cores, 1e-9))

    def _memory(self, snapshot: Snapshot) -> Text:
        number = len(snapshot.processes)
        return self.text(f"{size(snapshot.rss)} in {number} process{'es' if number != 1 else ''}")

    def _workers(self, snapshot: Snapshot) -> Iterator[tuple[str, Text]]:
        workers = snapshot.workers
        if not workers:
            return
        known = [worker.cpu for worker in workers if worker.cpu is not None]
        used = f", {sum(known):.2f} cores, the busiest {share(max(known))}" if known else ""
        yield "workers", self.text(f"{len(workers)}{used}, {size(sum(worker.rss for worker in workers))}")

    def _gpus(self, snapshot: Snapshot) -> Iterator[tuple[str, Text]]:
        for gpu in snapshot.gpus:
            line = self.text(f"{gpu.name}, ")
            line.append_text(self.text(_known(gpu.utilization, share), "bold"))
            yield f"GPU {gpu.index}", self._with_bar(line, gpu.utilization)
            yield f"GPU {gpu.index}", self.text(_gpu_facts(gpu))
        if "gpus" in snapshot.unknown:
            yield (
                ("", self.text(snapshot.unknown["gpus"], "dim"))
                if snapshot.gpus
                else (
                    "GPU",
                    self._unknown(snapshot, "gpus"),
                )
            )

    def _unknown(self, snapshot: Snapshot, name: str) -> Text:
        reason = snapshot.unknown.get(name, NOT_MEASURED)
        return self.text(reason if reason.startswith(("no ", "the ")) else f"not known: {reason}", "dim italic")

    def _with_bar(self, line: Text, part: float | None) -> Text:
        if part is not None and self._width >= _ROOM:
            line.append("  ")
            line.append_text(self._bar(part))
        return line

    def _bar(self, part: float | None) -> Text:
        return self.text("") if part is None else self.text(bar(part, _BAR, unicode=self._unicode), _colour(part))

    def threads(self, snapshot: Snapshot, most: int) -> Table:
        """The busiest threads, one a line."""
        from rich import box
        from rich.table import Table

        wide = self._width >= _ROOM
        table = Table(box=box.SIMPLE_HEAD if self._unicode else box.ASCII, pad_edge=False, show_edge=False)

        def column(title: str, *, right: bool = False, width: int | None = None) -> None:
            cut: OverflowMethod = "ellipsis" if self._unicode else "crop"
            side: JustifyMethod = "right" if right else "left"
            table.add_column(self.text(title, "dim"), justify=side, width=width, no_wrap=True, overflow=cut)

        column("thread")
        column("of")
        if wide:
            column("process", right=True)
        column("CPU", right=True)
        if wide:
            column("", width=_BAR)
        column("now")
        workers = {worker.pid for worker in snapshot.workers}
        named = [use for use in snapshot.threads if not _helper(use)]
        for use in named[:most]:
            cells = [self._name(use), self.text(WORKER if use.pid in workers else use.role)]
            if wide:
                cells.append(self.text(str(use.pid)))
            cells.append(self.text("" if use.cpu is None else share(use.cpu)))
            if wide:
                cells.append(self._bar(use.cpu))
            table.add_row(*cells, self.text(_STATES.get(use.state, use.state)))
        rest = len(snapshot.threads) - len(named[:most])
        if rest > 0:
            table.add_row(self.text(f"and {count(rest)} more", "dim"))
        return table

    def _name(self, use: ThreadUse) -> Text:
        return self.text(use.name or f"thread {use.tid}", "bold" if use.role == TRAINING else "")


def _helper(use: ThreadUse) -> bool:
    """A thread that its process keeps beside the main one and that does next to nothing: pools, feeders of queues."""
    return use.tid != use.pid and not use.role and use.cpu is not None and use.cpu < _HELPING


def _gpu_facts(gpu: GpuUse) -> str:
    memory = f"memory {_known(gpu.memory_used, size)}" + (f" of {size(gpu.memory_total)}" if gpu.memory_total else "")
    power = f"power {_known(gpu.power, _watts)}" + (f" of {_watts(gpu.power_limit)}" if gpu.power_limit else "")
    if gpu.throttle is None:
        return f"{memory}, {power}, throttling not measured"
    return f"{memory}, {power}, {'throttled: ' + ', '.join(gpu.throttle) if gpu.throttle else 'not throttled'}"


def _known(value: float | None, write: Callable[[float], str]) -> str:
    return NOT_MEASURED if value is None else write(value)


def _watts(value: float) -> str:
    return f"{value:.0f} W"


def _whole_seconds(value: float) -> str:
    """12 s, 2 min 05 s, 3 h 02 min: a figure that changes once a second."""
    if value < 3600:
        return seconds(value) if value >= 60 else f"{value:.0f} s"
    minutes = round(value / 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def _counter(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _amount(name: str, value: float) -> str:
    return size(value) if name.endswith("_bytes") else count(value)


def _colour(part: float) -> str:
    return "red" if part >= _HOT else "yellow" if part >= _WARM else "green"
