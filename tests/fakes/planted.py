"""Two small training programs, one on a virtual CUDA device and one on the CPU with a compiled function and
evaluations, faults to plant into them, and their counts within this process."""

from __future__ import annotations

import random
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
import torch
import torch._dynamo

from profiler.agent.hooks import dynamo, exact, regions, stages
from profiler.agent.patching import STATE
from profiler.check.counters.compare import compare, overall
from profiler.check.counters.counted import counted
from profiler.check.diff import content_ids, file_changes
from profiler.check.model import Counted, CountedLine, CounterLine, Limits
from profiler.run.tables import ENV_COUNT
from tests.fakes.watched import watched

STEPS: Final = 4
WARMUP: Final = 2
FILE: Final = "train.py"
PROGRAM: Final = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(16, 8)
targets = torch.randint(0, 4, (16,))
history = []
statistics = {}


def measure(logits, y):
    hits = (logits.argmax(1) == y).float()
    accuracy = hits.mean().item()
    statistics["accuracy"] = accuracy
    largest = logits.max().item()
    statistics["largest"] = largest
    spread = logits.std().item()
    statistics["spread"] = spread
    return accuracy


def step():
    x = data.cuda()
    y = targets.cuda()
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    measure(logits, y)
    statistics["loss"] = loss.item()
    mean = logits.mean()
    return mean
"""
PLACES: Final = ("    optimizer.zero_grad()", "    loss.backward()", "    optimizer.step()", "    measure(logits, y)")
"""Lines before which a fault is planted; `loss`, `logits`, `x` and `y` exist there."""
REMOVABLE: Final = (
    '    accuracy = hits.mean().item()\n    statistics["accuracy"] = accuracy\n',
    "    largest = logits.max().item()\n",
    "    spread = logits.std().item()\n",
    '    statistics["loss"] = loss.item()\n',
)
INSTEAD: Final = (
    '    accuracy = 0.0\n    statistics["accuracy"] = accuracy\n',
    "    largest = 0.0\n",
    "    spread = 0.0\n",
    '    statistics["loss"] = 0.0\n',
)
PLANTS: Final = {
    ".item()": ("value = {}.item()", ("loss", "logits.sum()", "x.mean()", "loss.detach()", "y.max()")),
    ".cpu()": ("kept = {}.cpu()", ("loss", "logits", "x", "logits[0]", "y")),
    "blocking copy": ("noise = {}.cuda()", ("data[:2]", "data.clone()", "targets", "data.t()", "torch.ones(3)")),
    "print": ("print({}, file=nowhere)", ("loss", "logits[0]", "loss.detach()", "y", "x[0]")),
    "mask index": ("chosen = {}", ("logits[logits > 0]", "x[x > 0]", "y[y == 1]", "x[y > 0]", "logits[y == 2]")),
    ".clone()": ("copied = {}.clone()", ("x", "logits", "loss", "y", "logits.detach()")),
    "second forward": ("again = model({})", ("x", "x[:8]", "x.detach()", "x.flip(0)", "x * 2")),
    "launch per parameter": (
        "scaled = [parameter.{} for parameter in model.parameters()]",
        ("mul(0.9)", "add(1)", "abs()", "neg()", "square()"),
    ),
    "leak": ("history.append({})", ("loss", "logits.exp()", "x + 1", "loss * 2", "logits.detach().abs()")),
}
"""Kind -> the line to plant, and what stands in it."""
ON_CPU: Final = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(16, 8)
targets = torch.randint(0, 4, (16,))
statistics = {}


@torch.compile(backend="eager")
def forward(x, y, scale):
    hidden = model[0](x)
    active = torch.relu(hidden)
    logits = model[2](active)
    loss = nn.functional.cross_entropy(logits, y)
    return loss * scale


def evaluate():
    model.eval()
    with torch.no_grad():
        logits = model(data)
        loss = nn.functional.cross_entropy(logits, targets)
        hits = logits.argmax(1) == targets
        accuracy = hits.float().mean()
    statistics["validation"] = loss.item()
    statistics["accuracy"] = accuracy
    model.train()


def step(number):
    loss = forward(data, targets, 1.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    norm = model[0].weight.norm()
    statistics["norm"] = norm.item()
    statistics["loss"] = loss.item()
    if number % 2:
        evaluate()
"""
"""Its reads are those that would wait if its tensors were on a GPU."""
CALL: Final = "    loss = forward(data, targets, 1.0)"
REMOVABLE_ON_CPU: Final = (
    '    statistics["norm"] = norm.item()\n',
    '    statistics["loss"] = loss.item()\n',
    '    statistics["validation"] = loss.item()\n',
)
COMPILED: Final = {
    "graph break": (
        ("    active =", "    logits =", "    loss = nn", "    return"),
        "    {}",
        (
            'print(end="")',
            "largest = x.max().item()",
            "torch._dynamo.graph_break()",
            "positive = bool(x.sum() > 0)",
            "values = hidden.tolist()",
        ),
    ),
    "recompilation": (
        (CALL,),
        "    loss = forward({})",
        (
            "data, targets, 1.0 + number",
            "data, targets, 1 if number % 2 else 1.0",
            "data[: 16 - number], targets[: 16 - number], 1.0",
            "data, targets, str and number / 2",
            "data.t().contiguous().t() if number % 2 else data, targets, 1.0",
        ),
    ),
    "slower evaluation": (
        ("        loss =", "        hits =", "        accuracy =", '    statistics["validation"]'),
        "{}",
        (
            "again = model(data)",
            "scores = logits.softmax(1)",
            "ordered = logits.sort(1)",
            "confusion = logits.T @ logits",
            "shares = logits.exp() / logits.exp().sum(1, keepdim=True)",
        ),
    ),
}
"""Kind -> beginnings of the lines before which it is planted (or, for a call, instead of which), the line, and what
stands in it."""


class Nowhere:
    """A file that keeps nothing."""

    def write(self, _: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Planted:
    """A program with a fault."""

    text: str
    line: int
    """The line that the gate has to name: of a leak the one that made what is kept."""
    counter: str = ""
    """The counter that has to name it, and no other line; empty: all counters that fail."""


def plant(kind: str, number: int, *, removing: bool) -> Planted:
    """One of 20 programs with a fault of this kind.

    :param removing: an unrelated line that waits is changed so that it waits no more.
    """
    template, values = PLANTS[kind]
    line = "    " + template.format(values[number % len(values)])
    place = PLACES[number // len(values) % len(PLACES)]
    text = PROGRAM
    if removing:
        index = number % len(REMOVABLE)
        text = text.replace(REMOVABLE[index], INSTEAD[index])
    text = text.replace(f"{place}\n", f"{line}\n{place}\n", 1)
    lines = text.splitlines()
    if line == "    history.append(loss)":
        line = next(each for each in lines if each.startswith("    loss ="))
    return Planted(text, lines.index(line) + 1)


def plant_on_cpu(kind: str, number: int, *, removing: bool) -> Planted:
    """One of 20 programs on the CPU with a fault of this kind; see `plant`."""
    places, template, values = COMPILED[kind]
    text = ON_CPU
    if removing:
        # beside a fault that is planted into the evaluation, its own line would be a part of the edited place
        removable = REMOVABLE_ON_CPU[: 2 if kind == "slower evaluation" else None]
        removed = removable[number % len(removable)]
        text = text.replace(removed, removed.partition(" = ")[0] + " = 0.0\n")
    lines = text.splitlines()
    turn = number // len(values)
    place = next(line for line in lines if line.startswith(places[turn % len(places)]))
    planted = template.format(values[number % len(values)])
    if kind == "slower evaluation":
        planted = place[: len(place) - len(place.lstrip())] + planted
    index = lines.index(place)
    if place == CALL:  # with as many lines of a comment above as the number of the turn
        lines[index : index + 1] = [*["    # the next batch"] * turn, planted]
    else:
        lines.insert(index, planted)
    # code that is compiled again for any number also makes a tensor of it, and reads that; what lives across a graph
    # break may be in use at the peak
    counter = {"recompilation": "recompilations", "graph break": "graph_breaks"}.get(kind, "")
    return Planted("\n".join(lines) + "\n", lines.index(planted) + 1, counter)


def moves() -> dict[str, tuple[str, str]]:
    """What is renamed or moved -> the name of the file, and its text; each does the same work as the program."""
    head, _, tail = PROGRAM.partition("def measure")
    measure, _, step = f"def measure{tail}".partition("\n\ndef step")
    return {
        "file renamed": ("fit.py", PROGRAM),
        "file moved to a folder": ("src/train.py", PROGRAM),
        "lines above": (FILE, f"# a comment\n# and another one\n\n{PROGRAM}"),
        "functions in another order": (FILE, f"{head}def step{step}\n\n{measure}"),
        "function renamed": (FILE, PROGRAM.replace("measure(", "gather(")),
        "variable renamed": (FILE, PROGRAM.replace("largest", "maximum")),
        "a block indented": (
            FILE,
            PROGRAM.replace('    statistics["loss"]', '    if True:\n        statistics["loss"]'),
        ),
        "lines between": (FILE, PROGRAM.replace("    loss.backward()\n", "    # backward\n\n    loss.backward()\n")),
        "file renamed and edited": ("fit.py", f'"""Trains."""\n\n{PROGRAM}'),
        "a comment at a line": (FILE, PROGRAM.replace("loss.item()\n", "loss.item()  # read\n")),
    }


def commit(folder: Path, text: str = PROGRAM) -> None:
    """A repository with the program."""
    (folder / FILE).write_text(text)
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a")):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def count(text: str, file: str, folder: Path) -> Counted:
    """Run the program's steps in this process, and count them as a recorded run would be counted."""
    from profiler.exact.operators import OperatorCounter

    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    source = text.splitlines()
    places: list[tuple[int, str]] = []

    def site(frame: FrameType) -> int:
        places.append((frame.f_lineno, frame.f_code.co_qualname))
        return len(places) - 1

    totals: dict[str, float] = dict.fromkeys(("syncs", "h2d", "d2h", "operators", "growth_bytes"), 0.0)
    lines: dict[CountedLine, float] = defaultdict(float)

    def add(counter: str, number: int, function: str, operation: str, amount: float) -> None:
        totals[counter] += amount
        if amount > 0:
            text = " ".join(source[number - 1].split())[:80]
            lines[CountedLine(counter, file, number, function, operation, text)] += amount

    counter = OperatorCounter(site, lambda name: name == str(path), lambda: None)
    operators, growth, events = _run(text, path, counter)
    for operator, number, calls, _ in operators:
        if operator.kind.name == "OPERATOR" and number >= 0:
            add("operators", *places[number], "", calls)
    for number, (_, size) in growth.items():
        if number >= 0:
            add("growth_bytes", *places[number], "", size)
    for (event, where), calls in events.items():
        for name in _counters_of(event) if where is not None else ():
            add(name, where.line, where.function, event.name, calls)
    totals["growth_bytes"] = max(0.0, totals["growth_bytes"])
    return Counted(STEPS, totals, {}, lines)


def count_on_cpu(text: str, file: str, folder: Path, *, steps: int = STEPS) -> Counted:
    """Run the steps of a program on the CPU in this process, with the hooks of `run --count`, and count them."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    torch._dynamo.reset()
    hooks = ((dynamo.PLUGIN, torch._dynamo), (exact.COUNTS, torch), (stages.STAGES, torch.nn.modules.module))
    hooks += ((stages.STAGES, torch.autograd.grad_mode), (regions.REGIONS, torch))
    with tempfile.TemporaryDirectory() as run, pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENV_COUNT, "1")
        with watched(Path(run), *hooks, (exact.COUNTS, torch._dynamo)) as loaded:
            recorder = STATE.recorder
            assert recorder is not None
            names: dict[str, Any] = {"__name__": "__main__"}
            exec(compile(text, str(path), "exec"), names)
            recorder.open_step()
            for number in range(WARMUP + steps):
                names["step"](number)
                recorder.step(0, number < WARMUP)
            return counted(loaded(), None, folder=str(folder))


def _run(text: str, path: Path, counter: Any) -> tuple[list[Any], dict[int, tuple[int, int]], dict[Any, int]]:
    """Operators, growth of memory by line, and events of the virtual device in the counted steps."""
    import profiler
    from profiler.exact.counting import Counting

    with profiler.virtual_cuda() as counts:
        names: dict[str, Any] = {"__name__": "__main__", "nowhere": Nowhere()}
        exec(compile(text, str(path), "exec"), names)
        counting = Counting(counter, None)
        counting.install()
        try:
            for _ in range(WARMUP):
                names["step"]()
            list(counter.take()), counter.memory.changes(), counts.clear()
            for _ in range(STEPS):
                names["step"]()
            return list(counter.take()), counter.memory.changes().growth, dict(counts.events)
        finally:
            counting.remove()


def _counters_of(event: Any) -> tuple[str, ...]:
    """The counters to which an event of a virtual device adds."""
    copy = (str(event.kind),) if event.kind in ("h2d", "d2h") else ()
    return ("syncs", *copy) if event.waits else copy


class Gate:
    """A program's baseline, against which its variants are judged."""

    def __init__(self, folder: Path, program: str = PROGRAM, counting: Callable[[str, str, Path], Counted] = count):
        self.folder, self.program, self._count = folder, program, counting
        commit(folder, program)
        self.base = counting(program, FILE, folder)
        self.sources = content_ids([FILE], str(folder))

    def judge(self, text: str, file: str = FILE) -> tuple[CounterLine, ...]:
        """The counters of a variant; the folder is as before afterwards."""
        if file != FILE:
            (self.folder / FILE).unlink()
        try:
            variant = self._count(text, file, self.folder)
            files = file_changes(self.sources, [file], str(self.folder))
            return compare([self.base, self.base], [variant, variant], Limits(), files)
        finally:
            if file != FILE:
                (self.folder / file).unlink()
            (self.folder / FILE).write_text(self.program)

    def finds(self, planted: Planted) -> bool:
        """Whether a planted fault fails, and its line is named."""
        lines = self.judge(planted.text)
        failed = (line for line in lines if line.state == "FAIL" and planted.counter in ("", line.counter))
        named = {change.line for line in failed for change in line.changes}
        return overall(lines) == "FAIL" and named == {planted.line}


def report(gate: Gate, on_cpu: Gate, numbers: int = 20, unchanged: int = 30) -> dict[str, str]:
    """What is found of every kind, and what fails without a fault."""
    found = {}
    kinds: list[tuple[Gate, Callable[..., Planted], str]] = [(gate, plant, kind) for kind in PLANTS]
    kinds += [(on_cpu, plant_on_cpu, kind) for kind in COMPILED]
    for judge, make, kind in kinds:
        missed = [
            [number for number in range(numbers) if not judge.finds(make(kind, number, removing=removing))]
            for removing in (False, True)
        ]
        alone, beside = (numbers - len(each) for each in missed)
        found[kind] = f"{alone} of {numbers}; with an unrelated line removed {beside} of {numbers}"
        if any(missed):
            found[kind] += f" (missed: {missed[0]}, {missed[1]})"
    order = random.Random(1)
    texts = [(each, each.program + "\n" * order.randrange(3)) for each in (gate, on_cpu) for _ in range(unchanged // 2)]
    false = sum(overall(each.judge(text)) == "FAIL" for each, text in texts)
    found["false FAIL, unchanged"] = f"{false} of {len(texts)}"
    moved = [name for name, (file, text) in moves().items() if overall(gate.judge(text, file)) == "FAIL"]
    found["false FAIL, renamed or moved"] = f"{len(moved)} of {len(moves())} {' '.join(moved)}".strip()
    return found
