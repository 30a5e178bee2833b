"""`run --virtual-cuda`: what is recorded of a program, and what is printed."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

import profiler
from profiler.analyse.timing.counts import run_counts, site_counts
from profiler.core.errors import ProfilerError
from profiler.report.render.json import counts_json
from profiler.run.tables import CallKind, CountKind

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="virtual devices need a machine without a GPU")

ROOT = Path(__file__).parents[2]
PROGRAM = """
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    x = torch.randn(8, 4).to(device)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(device, loss.item())
"""
COPY, READ = PROGRAM.splitlines().index("    x = torch.randn(8, 4).to(device)") + 1, len(PROGRAM.splitlines())


def start(folder: Path, *options: str, text: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(text, encoding="utf-8")
    record = [sys.executable, "-m", "profiler", "run", "--out", str(folder / "run"), *options]
    command = [*record, "--", sys.executable, str(folder / "train.py")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("virtual")
    return folder / "run", start(folder, "--virtual-cuda")


def test_the_program_runs_as_on_a_gpu(
    recorded: tuple[Path, subprocess.CompletedProcess[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    path, done = recorded
    assert done.returncode == 0, done.stderr
    runpy.run_path(str(path.parent / "train.py"))
    losses = [line.removeprefix("cuda ") for line in done.stdout.splitlines() if line.startswith("cuda ")]
    assert losses == [line.removeprefix("cpu ") for line in capsys.readouterr().out.splitlines()]
    assert len(losses) == 6


def test_waits_and_copies_are_counted_by_line(recorded: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    run = profiler.load(recorded[0])
    counts = [(count.kind, count.site and count.site.line, count.mean, count.waits) for count in site_counts(run)]
    assert counts[:2] == [(CountKind.SYNC, READ, 1.0, True), (CountKind.H2D, COPY, 1.0, True)]
    (_, copy, *_) = site_counts(run)
    assert (copy.bytes_per_step, copy.usual) == (8 * 4 * 4, (1, 8 * 4 * 4))
    assert copy.site is not None
    assert copy.site.source == "x = torch.randn(8, 4).to(device)"


def test_counts_are_printed_without_times(recorded: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    path, done = recorded
    assert "Counts are exact. No times were recorded." in done.stdout
    assert "The host waits for the device 2 times in a step" in done.stdout
    diagnosed = subprocess.run(
        [sys.executable, "-m", "profiler", "diagnose", path], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert diagnosed.stdout in done.stdout


LIBRARY = """
def longest(lengths):
    return int(max(lengths))
"""
WITH_LIBRARY = """
import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "site-packages"))
import torch
from kit import longest

weight = torch.nn.Parameter(torch.ones(3, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(6):
    weight.square().sum().backward()
    torch.nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)
    optimizer.step()
    optimizer.zero_grad()
    longest(weight.detach())
"""


def test_the_line_of_a_library_is_kept_beside_that_of_the_program(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "kit"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(LIBRARY, encoding="utf-8")
    done = start(tmp_path, "--virtual-cuda", text=WITH_LIBRARY)
    assert "train.py:14: bool, int, in kit/__init__.py:3 in longest()" in done.stdout
    counts = counts_json(run_counts(profiler.load(tmp_path / "run")))["counts"]
    waits = {each["line"]: each for each in counts if each["waits"]}
    bools, ints = (each for each in counts if each["source"] == "longest(weight.detach())" and each["waits"])
    place = {"file": "kit/__init__.py", "line": 3, "function": "longest", "source": "return int(max(lengths))"}
    assert bools["libraries"] == [{**place, "calls": 12}]
    assert ints["libraries"] == [{**place, "calls": 6}]
    (clipping,) = (each for each in waits.values() if "clip_grad_norm_" in each["source"])
    assert clipping["libraries"] == [], "torch's own lines are none"


def test_such_a_run_has_no_report_of_times(recorded: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    with pytest.raises(ProfilerError, match="a run that counts has no times"):
        profiler.read(recorded[0])


@pytest.mark.slow
def test_two_runs_have_equal_counts(recorded: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    start(tmp_path, "--virtual-cuda")
    first, second = (
        [(count.kind, count.name, count.site and count.site.line, count.per_step, count.before) for count in counts]
        for counts in (site_counts(profiler.load(recorded[0])), site_counts(profiler.load(tmp_path / "run")))
    )
    assert first == second


@pytest.mark.slow
def test_ranks_communicate_by_gloo_and_count_each(tmp_path: Path) -> None:
    text = """
import os
import sys
import torch
from torch import distributed, nn

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
distributed.init_process_group("nccl")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2).cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = model(torch.randn(8, 4, device="cuda") * (rank + 1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    distributed.barrier()
total = sum(parameter.sum().item() for parameter in model.parameters())
# One write. Where output is unbuffered (PYTHONUNBUFFERED), print() writes in pieces, and those of two ranks mix.
sys.stdout.write(f"sum {total}\\n")
sys.stdout.flush()
distributed.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    record = [sys.executable, "-m", "profiler", "run", "--virtual-cuda", "2", "--out", str(tmp_path / "run"), "--"]
    done = subprocess.run(
        [*record, *launcher, str(tmp_path / "train.py")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    sums = [line for line in done.stdout.splitlines() if line.startswith("sum ")]
    assert len(sums) == 2
    assert len(set(sums)) == 1
    run = profiler.load(tmp_path / "run")
    waits = run.calls[run.calls["kind"] == CallKind.SYNC]
    barriers = waits[waits["name"] == run.names.index("barrier")]
    assert sorted(Counter(barriers["pid"].tolist()).values()) == [4, 4]


def test_a_number_of_devices_below_one_is_refused(tmp_path: Path) -> None:
    done = start(tmp_path, "--virtual-cuda", "0")
    assert done.returncode == 2
    assert "--virtual-cuda" in done.stderr


def test_kernels_of_triton_and_of_cuda_are_refused_in_one_line(tmp_path: Path) -> None:
    package = tmp_path / "triton" / "runtime"
    package.mkdir(parents=True)
    (tmp_path / "triton" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "jit.py").write_text(
        "class JITFunction:\n    def __init__(self, fn):\n        self.fn = fn\n    def run(self):\n        pass\n",
        encoding="utf-8",
    )
    text = """
import torch
from torch.utils import cpp_extension
from triton.runtime.jit import JITFunction

def add_kernel():
    pass

for call in (
    JITFunction(add_kernel).run,
    lambda: cpp_extension.load_inline("fast_norm", cpp_sources="", cuda_sources="__global__ void norm() {}"),
    lambda: cpp_extension.load("fast_scan", ["scan.cpp", "scan.cu"]),
):
    try:
        call()
    except RuntimeError as error:
        print(error)
"""
    done = start(tmp_path, "--virtual-cuda", text=text)
    assert [line for line in done.stdout.splitlines() if line.startswith("profiler: ")] == [
        f"profiler: the {name} does not run on virtual CUDA devices"
        for name in ("Triton kernel add_kernel", "CUDA extension fast_norm", "CUDA extension fast_scan")
    ], done.stderr


def test_a_program_without_the_devices_is_said_to_be(tmp_path: Path) -> None:
    done = start(tmp_path, "--virtual-cuda", text="print('no torch here')")
    assert "no torch here" in done.stdout
    assert done.stderr.count("profiler: the program saw no virtual device: ") == 1
    assert done.returncode == 2


def test_a_machine_with_a_gpu_is_refused_before_the_program_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from profiler.__main__ import main
    from profiler.core import machine

    (tmp_path / "version").touch()
    monkeypatch.setattr(machine, "_DRIVER", tmp_path / "version")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    mark = tmp_path / "started"
    out, touch = ["--out", str(tmp_path / "run")], ["--", "touch", str(mark)]
    for command in (
        ["run", *out, "--virtual-cuda", *touch],
        ["check", *out, "--virtual-cuda", "--baseline", "b.json", "--update", *touch],
        ["compare", *out, "--virtual-cuda", "--before", f"touch {mark}", "--after", f"touch {mark}"],
    ):
        assert main(command) == 2
        assert "this machine has an NVIDIA GPU" in capsys.readouterr().err
        assert not mark.exists()
