"""Counts the operators of one step: how many there are, how many are so small that calling them costs more than they
compute, and which lines call these.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from operator import attrgetter, itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from profiler.agent.clocks import now
from profiler.agent.hooks import exact
from profiler.agent.hooks.torch_trace import ProfilerWindow
from profiler.agent.patching import STATE, Hook, is_user_file
from profiler.run.tables import COUNTED_LINES, COUNTED_STEPS, OPERATORS

SKIP: Final = 12
"""Steps before the window: torch's trace at level full has ended then."""
STEPS: Final = COUNTED_STEPS
"""All but the last step are timed. In the last one the stacks are taken, which takes longer than a small operator."""
SMALL_US: Final = 20.0
"""On a CPU a call takes some 2 µs, and with its gradient another 5 to 10 µs (measured on an AMD EPYC): that is most of
what an operator of less than this takes."""
MAX_STACKS: Final = 20_000
"""Operators of a step whose stacks are taken; at some 15 µs each, more would hold up the program."""
_FRAMES: Final = 6
_PROBES: Final = 200
_PROBE: Final = "profiler"
"""Name of events that are no operators."""
_SHIFT: Final = 100
"""Events by which each timed step is moved in the profiler's list. The list doubles where it is full, at 2,048 events
and so on, and the operator that is recorded then takes up to 1.5 ms longer. Where it is another operator in each step,
its shortest time is right. More than the events of most operators: `linear` has 10, with its gradient 21."""
_BACKWARD: Final = "autograd::engine::evaluate_function"
_NAN_CHECKS: Final = ("aten::isnan", "aten::_is_any_true", "aten::item")
"""What the autograd engine itself calls for each gradient while anomaly detection looks for NaN
(`Engine::evaluate_function` in torch/csrc/autograd/engine.cpp)."""
_LOOK_UPS: Final = ("aten::embedding", "aten::embedding_bag")
_DENSE: Final = ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward")
"""What makes their gradients, unless these hold only the rows that were looked up."""
_USER_SCOPE: Final = 7
"""`torch::profiler::impl::RecordScope::USER_SCOPE`: what `record_function` marks, such as an optimizer's step."""
CALLERS: Final = {"utils/data/": "loader", "optim/": "optimizer"}
"""Folder within torch -> who calls an operator, if not the program itself."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """A call of an operator by the program or by the autograd engine, with all operators that it calls."""

    name: str
    microseconds: float
    events: int
    """Events of the profiler in it, itself included."""
    sequence: int
    """Number of the first gradient function that it creates, or of the one that it evaluates; -1 without gradients."""
    stack: tuple[str, ...] = ()
    """`FILE(LINE): FUNCTION`, the innermost frame first."""
    nan_checks: float = 0.0
    """Microseconds in which the engine looks for NaN in what a gradient function computed."""
    is_dense: bool = False
    """Whether it makes a gradient of all rows of a table."""
    looked_up: tuple[int, int] = (0, 0)
    """The rows of a table, and how many of them this operator looks up; (0, 0): it looks up none, or has no stack."""

    @property
    def is_backward(self) -> bool:
        """Whether the autograd engine evaluates a gradient function."""
        return self.name.startswith(_BACKWARD)


class OperatorSession:
    """Counts the operators of one step by torch's legacy profiler, which starts and ends in less than 1 ms and keeps
    only times; in the next step it takes stacks too."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._steps: list[list[OperatorCall]] = []
        self._has_stacks = False
        self._start(with_stack=False)
        self.begin = now()
        self.end = 0

    def next_step(self) -> None:
        """Keep the times of a step; take stacks in the last one, unless there are too many operators."""
        self._steps.append(operators(self._stop(), with_stack=False))
        self._has_stacks = len(self._steps) == STEPS - 1 and len(self._steps[-1]) <= MAX_STACKS
        self._start(with_stack=self._has_stacks)
        if not self._has_stacks:
            self._probe(_SHIFT * len(self._steps))

    def finish(self, directory: Path) -> dict[str, Any]:
        """End the session; nothing is written to `directory`."""
        events = self._stop()
        self.end = now()
        located = operators(events, with_stack=self._has_stacks)
        timed = undisturbed(self._steps or [located])
        folder = self._torch.__path__[0]
        return summarize(timed, located if self._has_stacks else [], self._event_cost(), folder)

    def abandon(self) -> None:
        """Stop collecting in a forked child."""
        self._torch._C._autograd._enable_record_function(False)

    def _start(self, *, with_stack: bool) -> None:
        autograd = self._torch.autograd
        options = self._torch._C._profiler._ExperimentalConfig()
        kind = autograd.ProfilerState.CPU
        config = autograd.ProfilerConfig(kind, with_stack, False, with_stack, False, False, options)  # shapes, stacks
        autograd._enable_profiler_legacy(config)

    def _stop(self) -> list[list[Any]]:
        events: list[list[Any]] = self._torch.autograd._disable_profiler_legacy()
        return events

    def _event_cost(self) -> float:
        """Microseconds by which an event of the profiler makes an operator longer: measured, without any operator."""
        without = min(self._probe(_PROBES) for _ in range(3))
        self._start(with_stack=False)
        try:
            costs = [self._probe(_PROBES) for _ in range(3)]
        finally:
            self._stop()
        return max(0.0, min(costs) - without) / _PROBES

    def _probe(self, count: int) -> float:
        """Microseconds of so many events of the profiler that are no operators."""
        event = self._torch._C._profiler._RecordFunctionFast
        begin = now()
        for _ in range(count):
            with event(_PROBE):
                pass
        return (now() - begin) / 1000


def operators(threads: Iterable[Iterable[Any]], *, with_stack: bool) -> list[OperatorCall]:
    """Return the outermost operators in the events of each thread."""
    return [each for events in threads for each in _outermost(events, with_stack)]


def _outermost(events: Iterable[Any], with_stack: bool) -> Iterator[OperatorCall]:
    opened: list[tuple[Any, bool]] = []  # each with whether it is an operator within no other one
    depth = inner = 0
    sequence = -1  # the first of an operator; the engine's own event of a gradient function has none
    checks, is_dense = 0.0, False
    for event in events:
        kind = event.kind()
        if kind == "push":
            is_operator = event.scope() != _USER_SCOPE
            opened.append((event, is_operator))
            depth += is_operator
            inner = inner + 1 if depth > 1 else 0
            is_dense = event.name() in _DENSE or (is_dense and depth > 1)
            sequence = event.sequence_nr() if not inner or sequence < 0 else sequence
        elif kind == "pop" and opened:
            begin, is_operator = opened.pop()
            depth -= is_operator
            if is_operator and not depth and begin.name() != _PROBE:
                name, stack = begin.name(), tuple(begin.stack()) if with_stack else ()
                looked = checks if name.startswith(_BACKWARD) else 0.0
                # of a table, and of the numbers of the rows that it looks up
                shapes: Sequence[Any] = begin.shapes() if with_stack and name in _LOOK_UPS else ()
                rows = (shapes[0][0], prod(shapes[1])) if len(shapes) > 1 and shapes[0] else (0, 0)
                took = begin.cpu_elapsed_us(event)
                yield OperatorCall(name, took, 1 + inner, sequence, stack, looked, is_dense, rows)
                checks = 0.0
            elif is_operator and depth == 1 and begin.name() in _NAN_CHECKS:
                checks += begin.cpu_elapsed_us(event)


def undisturbed(steps: Sequence[Sequence[OperatorCall]]) -> list[OperatorCall]:
    """Return the operators of a step, each with its shortest time in any of the steps: others may wait for a core.

    Of steps with different operators it is the shortest step.
    """
    shortest = list(min(steps, key=lambda step: sum(each.microseconds for each in step)))
    names = [each.name for each in shortest]
    same = [step for step in steps if [each.name for each in step] == names]
    return [min(calls, key=lambda each: each.microseconds) for calls in zip(*same, strict=True)]


def summarize(
    timed: Sequence[OperatorCall], located: Sequence[OperatorCall], event_cost: float, torch_folder: str
) -> dict[str, Any]:
    """Summarize the operators of a step for the run.

    :param located: the operators of another step, with stacks; they are matched by name and order.
    :return: `lines`, those with most seconds first: the frames [file, line, function] that are not torch's, the
        innermost 6 and the program's own innermost one, the innermost first; whether the operators are of backward
        passes, which have the frames of the operators whose gradients they compute; who called them, of CALLERS;
        number and seconds of all; number and seconds of small ones. What the events of the profiler cost is not in the
        seconds. `nan_checks`, where there are any: the seconds in which anomaly detection looks for NaN. `tables`,
        where rows of tables are looked up that have gradients, one for each line with most seconds first: the line, the
        rows of the table, how many rows a step looks up, and the seconds that the gradient takes.
    """
    lines: dict[tuple[Any, bool, str], list[float]] = {}
    tables: dict[tuple[Any, int], list[float]] = {}
    for each, origin in zip(timed, _origins(timed, located), strict=True):
        stack = origin.stack if origin else ()
        seconds = max(0.0, each.microseconds - event_cost * (each.events - 0.5)) / 1e6
        is_small = seconds * 1e6 < SMALL_US
        frames = _frames(stack, torch_folder)
        line = lines.setdefault((frames, each.is_backward, _caller(stack, torch_folder)), [0, 0.0, 0, 0.0])
        if origin is not None and each.is_dense and origin.looked_up[0]:
            rows, taken = origin.looked_up
            table = tables.setdefault((frames, rows), [0, 0.0])
            table[0] += taken
            table[1] += seconds
        for column, amount in enumerate((1, seconds, is_small, is_small * seconds)):
            line[column] += amount
    largest = sorted(lines.items(), key=lambda line: -line[1][1])[:COUNTED_LINES]
    checks = sum(each.nan_checks for each in timed) / 1e6
    found = {"lines": [[*key, *values] for key, values in largest]}
    of_tables = sorted(([*key, *values] for key, values in tables.items()), key=itemgetter(-1), reverse=True)
    return found | ({"nan_checks": checks} if checks else {}) | ({"tables": of_tables[:_TABLES]} if tables else {})


_TABLES: Final = 8
"""Lines that look up rows of tables which are recorded."""


def _origins(timed: Sequence[OperatorCall], located: Sequence[OperatorCall]) -> list[OperatorCall | None]:
    """Return the located call of each timed operator, of one in a backward pass that of the operator whose gradient it
    computes; None: not known."""
    forward = [each for each in located if each.sequence >= 0 and not each.is_backward]
    forward.sort(key=attrgetter("sequence"))  # of those with the same number, only the last one can have created it
    numbers = [each.sequence for each in forward]
    origins: dict[str, list[OperatorCall | None]] = {}
    for each in located:
        origin: OperatorCall | None = each
        if each.is_backward:
            position = bisect_right(numbers, each.sequence) - 1 if each.sequence >= 0 else -1
            origin = forward[position] if position >= 0 else None
        origins.setdefault(each.name, []).append(origin)
    remaining = {name: iter(each) for name, each in origins.items()}
    return [next(remaining.get(each.name, iter(())), None) for each in timed]


def _frames(stack: Iterable[str], torch_folder: str) -> tuple[tuple[str, int, str], ...]:
    frames = []
    for text in stack:
        place, _, function = text.partition("): ")
        file, _, line = place.rpartition("(")
        if line.isdecimal() and not file.startswith(torch_folder):
            frames.append((file, int(line), function))
    kept = frames[:_FRAMES]
    if not any(is_user_file(file) for file, *_ in kept):  # a library's model may be deeper below the program's line
        kept += [frame for frame in frames[_FRAMES:] if is_user_file(frame[0])][:1]
    return tuple(kept)


def _caller(stack: Sequence[str], torch_folder: str) -> str:
    """A loader calls what it runs of the program, such as a dataset. An optimizer does not: a closure is the program's,
    and in Lightning all of a step is one."""
    texts = [text.removeprefix(torch_folder + "/") for text in stack]
    outermost = next((at for at, text in enumerate(texts) if text == stack[at]), len(texts))
    for folder, name in CALLERS.items():
        if any(text.startswith(folder) for text in (texts[:outermost] if name == "optimizer" else texts)):
            return name
    return ""


def install(module: ModuleType) -> ProfilerWindow | None:
    """Count the operators of one step in the life of the recorder, if this version of torch can."""
    if (
        STATE.recorder is None
        or exact.is_exact()
        or not hasattr(sys.modules["torch.autograd"], "_enable_profiler_legacy")
    ):
        return None
    return ProfilerWindow(STATE.recorder, OPERATORS, OperatorSession, skip=SKIP, steps=STEPS).install(module)


PLUGIN = Hook(OPERATORS, {"torch.autograd.profiler": install}, levels=("standard", "full"))
