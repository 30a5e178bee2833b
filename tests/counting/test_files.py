"""Files that a program opens for writing are counted once each, at the program's line."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import profiler
from profiler.analyse.site_counts import site_counts
from profiler.counting.files import FileCounter
from profiler.counting.operators import OperatorCounter, OperatorKind
from profiler.report.count_text import count_lines
from profiler.run.tables import CountKind

ROOT = Path(__file__).parents[2]


@contextmanager
def counting() -> Iterator[Counter[int]]:
    """Receives the number of files of each line of this file."""
    counter = OperatorCounter(lambda frame: frame.f_lineno, lambda file: file == __file__, lambda: None)
    lines = Counter[int]()
    with ExitStack() as stack:
        FileCounter(counter).install(stack)
        yield lines
    for operator, site, calls, _ in counter.take():
        assert operator.kind is OperatorKind.FILE
        lines[site] += calls


def here() -> int:
    """The line that calls this."""
    return sys._getframe(1).f_lineno


def opened_low(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))


def opened_by_opener(path: Path) -> None:
    open(path, "w", opener=os.open).close()


def changed(path: Path) -> None:
    path.touch()
    with open(path, "r+b") as file:
        file.write(b"text")


def temporary(path: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent):
        pass


def zipped(path: Path) -> None:
    with gzip.open(path, "wt") as file:
        file.write("text")


WRITES: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("text", encoding="utf-8"),
    "bytes": lambda path: open(path, "wb").close(),
    "appended": lambda path: open(file=path, mode="a").close(),
    "changed": changed,
    "low": opened_low,
    "opener": opened_by_opener,
    "temporary": temporary,
    "compressed": zipped,
    "numpy": lambda path: np.save(path.with_suffix(".npy"), np.ones(3)),
    "torch": lambda path: torch.save(torch.ones(3), path),
    "torch, as text": lambda path: torch.save(torch.ones(3), str(path)),
    "torch, former format": lambda path: torch.save(torch.ones(3), path, _use_new_zipfile_serialization=False),
    "torch, other letters": lambda path: torch.save(torch.ones(3), path.with_name("größe")),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_file_counts_once(name: str, tmp_path: Path) -> None:
    with counting() as lines:
        WRITES[name](tmp_path / "file")
    assert sum(lines.values()) == (2 if name == "changed" else 1), "touch opens the file too"
    assert -1 not in lines


def test_it_counts_at_the_line_that_calls_a_library(tmp_path: Path) -> None:
    with counting() as lines:
        torch.save(torch.ones(3), tmp_path / "one")
        np.save(tmp_path / "two", np.ones(3))
        line = here()
    assert lines == {line - 2: 1, line - 1: 1}


def test_what_writes_no_file_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("text", encoding="utf-8")
    with counting() as lines:
        assert (tmp_path / "old").read_text(encoding="utf-8") == "text"
        torch.save(torch.ones(3), io.BytesIO())
        os.close(os.open(tmp_path / "old", os.O_RDONLY))
        open(os.devnull, "w").close()
        with pytest.raises(FileNotFoundError):
            (tmp_path / "absent" / "file").write_text("text", encoding="utf-8")
    assert lines == {}


def test_the_functions_are_as_before_in_use_and_afterwards(tmp_path: Path) -> None:
    before = open, io.open, os.open, torch._C.PyTorchFileWriter

    class Owner:
        opener: Any = open

    with counting():

        class Counted:
            opener: Any = open

        assert io.open is open
        assert open.__name__ == "open"
        Counted().opener(tmp_path / "file", "w").close()  # it is no method, as a function of C is none
        assert pickle.loads(pickle.dumps(open)) is open
        assert pickle.loads(pickle.dumps(os.open)) is os.open
        torch.save({"weight": torch.ones(3)}, tmp_path / "saved")
        assert torch.load(tmp_path / "saved")["weight"].tolist() == [1, 1, 1]
    assert (open, io.open, os.open, torch._C.PyTorchFileWriter) == before
    Owner().opener(tmp_path / "file", "r").close()


PROGRAM = """
import torch
from pathlib import Path

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
log = open("log", "w")
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    torch.save(model.state_dict(), f"{step}.pt")
    for name in ("a", "b"):
        Path(name).write_text(str(step))
"""


@pytest.mark.parametrize("option", ["--count", "--virtual-cuda"])
def test_a_run_has_the_files_of_a_step_by_line(option: str, tmp_path: Path) -> None:
    if option == "--virtual-cuda" and torch.cuda.is_available():
        pytest.skip("virtual devices need a machine without a GPU")
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "profiler", "run", option, "--out", str(tmp_path / "run"), "--"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = profiler.load(tmp_path / "run")
    counts = site_counts(run)
    files = {
        PROGRAM.splitlines()[count.site.line - 1].split("(")[0].strip(): count
        for count in counts
        if count.kind is CountKind.FILE and count.site
    }
    assert {name: (count.usual[0], len(count.per_step)) for name, count in files.items()} == {
        "log = open": (0, 1),  # all steps have equal counts
        "torch.save": (1, 1),
        "Path": (2, 1),
    }
    assert files["log = open"].before == 1
    assert "files opened for writing: 3 in a step" in "\n".join(count_lines(run.info, len(run.steps), counts))
