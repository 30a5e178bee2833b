"""`run --count`: planted faults are counted at their lines, and repeats have equal counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import profiler
from profiler.__main__ import main
from profiler.analyse.model.device import RunCounts, SiteCount
from profiler.analyse.timing.counts import run_counts, site_counts
from profiler.report.counts import count_report
from profiler.report.render.json import counts_json
from profiler.report.write import rendered
from profiler.run.tables import CountKind

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os
import torch
from torch import nn

ill = os.environ["ILL"].split(",")
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
is_compiled = bool({"recompilation", "graph break"} & {*ill})
step_model = torch.compile(model, backend="eager") if is_compiled else model
# the first optimizer of a process imports torch's compiler, which takes as long as torch
optimizer = torch.optim.SGD(model.parameters(), lr=0.01) if is_compiled else None
losses = []


def scaled(x):
    x = x * 2
    print("scaled")  # graph break
    return x + 1


if "graph break" in ill:
    scaled = torch.compile(scaled, backend="eager")
for step in range(6):
    x = torch.randn(8 + step if "recompilation" in ill else 8, 16, device=device)
    if "clone" in ill:
        x = x.clone()  # clone
    if "second" in ill:
        model(x)  # second
    if "graph break" in ill:
        x = scaled(x)
    loss = step_model(x).square().mean()  # recompilation
    total = loss * 2  # leak
    model.zero_grad()
    loss.backward()
    if "launches" in ill:
        for parameter in model.parameters():
            parameter.grad.mul_(1.0)  # launches
    if optimizer is not None:
        optimizer.step()
    else:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
    if "leak" in ill:
        losses.append(total)
    if "read" in ill:
        loss.item()  # read
"""
LINES = PROGRAM.splitlines()


def line_of(mark: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if line.endswith(f"# {mark}"))


def record(folder: Path, ill: str, *options: str) -> tuple[SiteCount, ...]:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    command = ["run", "--out", str(folder / ill), *(options or ("--count",))]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"ILL": ill, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}.items():
            patch.setenv(name, value)
        assert main([*command, "--", sys.executable, str(folder / "train.py")]) == 0
    return site_counts(profiler.load(folder / ill))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("counts")


@pytest.fixture(scope="module")
def healthy(folder: Path) -> tuple[SiteCount, ...]:
    return record(folder, "none")


def amounts(counts: tuple[SiteCount, ...], kind: CountKind) -> dict[int, tuple[int, int]]:
    """Number and bytes in most steps, by line."""
    lines: dict[int, tuple[int, int]] = {}
    for count in counts:
        if count.kind is kind and count.site is not None:
            before = lines.get(count.site.line, (0, 0))
            lines[count.site.line] = before[0] + count.usual[0], before[1] + count.usual[1]
    return lines


PLANTED = [
    ("clone", CountKind.ALLOCATION),
    ("clone", CountKind.OPERATOR),
    ("second", CountKind.FLOPS),
    ("launches", CountKind.OPERATOR),
    ("leak", CountKind.GROWTH),
    ("read", CountKind.SYNC),
]


def raised(healthy: tuple[SiteCount, ...], counts: tuple[SiteCount, ...], kind: CountKind) -> set[int]:
    """Lines that count more than in the healthy program."""
    before, after = amounts(healthy, kind), amounts(counts, kind)
    return {line for line, amount in after.items() if amount > before.get(line, (0, 0))}


def test_faults_planted_at_once_add_counts_at_their_lines(folder: Path, healthy: tuple[SiteCount, ...]) -> None:
    counts = record(folder, ",".join(dict(PLANTED)))
    for ill, kind in PLANTED:
        assert line_of(ill) in raised(healthy, counts, kind), (ill, kind)
    assert raised(healthy, counts, CountKind.SYNC) == {line_of("read")}
    for kind in (CountKind.OPERATOR, CountKind.FLOPS, CountKind.ALLOCATION):
        before, after = amounts(healthy, kind), amounts(counts, kind)
        assert {line: after.get(line) for line in before} == before, "two processes count the other lines alike"


@pytest.mark.slow
@pytest.mark.parametrize(("ill", "kind"), PLANTED)
def test_a_planted_fault_adds_counts_at_its_line(
    folder: Path, healthy: tuple[SiteCount, ...], ill: str, kind: CountKind
) -> None:
    path = folder / ill
    counts = site_counts(profiler.load(path)) if path.exists() else record(folder, ill)
    assert raised(healthy, counts, kind) == {line_of(ill)}


@pytest.mark.parametrize(
    ("ill", "kind", "option"),
    [
        ("graph break", CountKind.GRAPH_BREAK, "--count"),
        pytest.param("graph break", CountKind.GRAPH_BREAK, "--virtual-cuda", marks=pytest.mark.slow),
        pytest.param("recompilation", CountKind.RECOMPILATION, "--count", marks=pytest.mark.slow),
        pytest.param("recompilation", CountKind.RECOMPILATION, "--virtual-cuda", marks=pytest.mark.slow),
    ],
)
def test_compilation_is_counted_from_the_first_step(tmp_path: Path, ill: str, kind: CountKind, option: str) -> None:
    counts = [count for count in record(tmp_path, ill, option) if count.kind is kind]
    assert {count.site.line for count in counts if count.site} == {line_of(ill)}
    assert sum(count.before + count.mean * count.steps for count in counts) >= 1


def test_a_healthy_program_has_no_growth_and_no_reads(healthy: tuple[SiteCount, ...]) -> None:
    assert not [count for count in healthy if count.kind is CountKind.GROWTH and any(count.usual)]
    assert not [count for count in healthy if count.kind is CountKind.SYNC]


@pytest.mark.slow
def test_repeats_have_equal_counts(healthy: tuple[SiteCount, ...], tmp_path: Path) -> None:
    again = record(tmp_path, "none")
    assert [(each.kind, each.name, each.site, each.before, each.per_step) for each in again] == [
        (each.kind, each.name, each.site, each.before, each.per_step) for each in healthy
    ]


def test_counts_are_shown_as_text_and_as_data(folder: Path, healthy: tuple[SiteCount, ...]) -> None:
    counted = RunCounts(profiler.load(folder / "none").info, 5, healthy)
    screen = count_report(counted).first
    assert screen is not None
    assert {"5 steps", "CPU"} <= set(screen.context)
    assert screen.headline.text == "On a GPU the host would wait for the device 0 times in a step"
    data = json.loads(json.dumps(counts_json(counted)))
    assert data["per_step"]["flops"]["number"] > 0


def test_reports_have_the_counts(folder: Path, healthy: tuple[SiteCount, ...]) -> None:
    run = profiler.load(folder / "none")
    page = rendered(run_counts(run), "html")
    assert f"train.py:{line_of('recompilation')}" in page
    assert "loss = step_model(x).square().mean()" in page
    markdown = rendered(run_counts(run), "md")
    assert "## Memory in use at the peak" in markdown
    assert json.loads(rendered(run_counts(run), "json"))["steps"] == len(run.steps)


RECEIVED = """
import torch
from torch.utils.data import DataLoader


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, held):
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        result = func(*(each.held if isinstance(each, cls) else each for each in args), **(kwargs or {}))
        return cls(result) if isinstance(result, torch.Tensor) else result

    def __reduce_ex__(self, protocol):
        return receive, (self.held,)

    def pin_memory(self):
        return self.cosh()


def receive(held):
    return Wrapper(held).sinh()


loader = DataLoader([torch.zeros(4)] * 6, 2, num_workers=1, pin_memory=True, collate_fn=lambda rows: Wrapper(rows[0]))
batches = [batch.held.sum().item() for batch in loader]
print(batches)
"""


@pytest.mark.parametrize(
    ("option", "value"), [("--count", 0.0), pytest.param("--virtual-cuda", 4.0, marks=pytest.mark.slow)]
)
def test_batches_of_a_subclass_of_tensors_are_received_and_do_not_count(
    tmp_path: Path, option: str, value: float
) -> None:
    script = tmp_path / "train.py"
    script.write_text(RECEIVED, encoding="utf-8")
    command = [sys.executable, "-m", "profiler", "run", option, "--out", str(tmp_path / "run"), "--"]
    done = subprocess.run(
        [*command, sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert str([value] * 3) in done.stdout
    found = {count.name for count in site_counts(profiler.load(tmp_path / "run"))}
    assert "aten::sum" in found
    assert not found & {"aten::sinh", "aten::cosh"}


@pytest.mark.slow
def test_virtual_devices_count_operators_too(healthy: tuple[SiteCount, ...], tmp_path: Path) -> None:
    counts = record(tmp_path, "none", "--virtual-cuda")
    assert amounts(counts, CountKind.FLOPS) == amounts(healthy, CountKind.FLOPS)
