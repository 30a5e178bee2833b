"""Facts as rows for people, and names of devices."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from profiler.core.facts import fact_rows, is_plain_python, program_name, stated_device, with_python


def test_no_python_values_are_shown() -> None:
    facts = {
        "memory_bytes": 8_000_000_000,
        "governor": None,
        "environment": {},
        "hooks": {"item": ""},
        "unused_gradients": {"not_judged": {"code": "hooks", "values": {}}},
        "versions_of": "the recorder's Python",
        "limits": {"open_files": 1024},
        "fixes": [],
    }
    assert fact_rows(facts) == {"memory": "8.00 GB", "limits open files": "1024", "fixes": "none"}


GPUS = ({"name": "NVIDIA H200"}, {"name": "NVIDIA H200"})


@pytest.mark.parametrize(
    ("facts", "devices", "expected"),
    [
        ({"device": "host", "device_label": "one core"}, GPUS, "host device (CPU)"),
        ({"device": "cpu"}, (), "CPU"),
        ({"device": "cuda", "device_label": "NVIDIA L4"}, GPUS, "NVIDIA L4"),
        ({"device": "cuda"}, GPUS, "NVIDIA H200"),
        ({"device": "cuda"}, (), "GPU"),
        ({}, ({},), "device not named"),
    ],
)
def test_names_of_devices(facts: dict[str, Any], devices: tuple[dict[str, Any], ...], expected: str) -> None:
    assert stated_device(facts, devices) == expected


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (("python", "train.py", "--lr", "3"), "train"),
        (("/usr/bin/python3.11", "-u", "-m", "pkg.lm", "--x"), "pkg.lm"),
        (("python", "-um", "pkg.lm"), "pkg.lm"),
        (("python", "-mpkg.lm"), "pkg.lm"),
        (("python3", "-c", "pass"), "python3"),
        (("python",), "python"),
        (("./train.sh", "a.py"), "train"),
        (("python", "-W", "ignore", "train.py"), "train"),
        (("python", "-m", "torch.distributed.run", "--nproc_per_node", "2", "runs/ddp.py", "--lr", "3"), "ddp"),
        (("/usr/bin/torchrun", "--standalone", "-m", "pkg.train"), "pkg.train"),
        (("accelerate", "launch", "train.py"), "train"),
        (("accelerate", "test"), "accelerate"),
        (("torchrun", "--module", "pkg.train"), "pkg.train"),
        (("python", "/usr/bin/torchrun", "runs/ddp.py"), "ddp"),
        (("python", "train", "--config", "cfg.py"), "train"),
        (("python", "bin/train", "-c", "x.yaml"), "train"),
        (("python", "/data/run", "-m", "resnet50"), "run"),
    ],
)
def test_program_name(argv: tuple[str, ...], name: str) -> None:
    assert program_name(argv) == name


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("/env/bin/python3.11", "train.py"), True),
        (("python", "-m", "torch.distributed.run", "train.py"), False),
        (("/usr/bin/torchrun", "train.py"), False),
        (("mpirun", "-n", "2", "python", "train.py"), False),
        ((), False),
    ],
)
def test_a_program_without_a_launcher(argv: tuple[str, ...], expected: bool) -> None:
    assert is_plain_python(argv) is expected


def test_a_script_that_cannot_start_by_itself_gets_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "own.py"):
        (tmp_path / name).write_text("#!/usr/bin/env python3\n")
    (tmp_path / "own.py").chmod(0o755)
    assert with_python(["train.py", "--lr", "1"]) == (sys.executable, "train.py", "--lr", "1")
    for command in (("./own.py",), ("none.py",), ("python", "train.py"), ()):
        assert with_python(command) == command
