"""Tests of `check` share these: a trainer of the standard library alone, and a folder to check it in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

STEPPING = """
import sys
from profiler import marks
amount, syncs = int(sys.argv[1]), int(sys.argv[2])
while True:
    for number in range(amount):
        number * number
    marks.count("syncs", syncs)
    marks.step(tokens=5)
"""
QUICK_CHECK = """
import sys
from profiler.__main__ import main
from profiler.check.speed import interleave
interleave.BLOCK_S, interleave.BLOCKS = 0.002, ((float("inf"), 8),)
sys.exit(main(["check", *sys.argv[1:]]))
"""
"""`check` with few short blocks, as a program of its own."""
REPORTS = {"check.json", "check.md", "check.html", "junit.xml", "check.sarif"}


def train(amount: int = 2000, syncs: int = 3) -> list[str]:
    return [sys.executable, "train.py", str(amount), str(syncs)]


def change_syncs(by: int) -> None:
    """Have the trainer in this folder count so many more syncs per step than its command says."""
    Path("train.py").write_text(STEPPING.replace('"syncs", syncs', f'"syncs", syncs + {by}'))


def train_command(*options: int) -> str:
    return " ".join(train(*options))


def check_report(out: str = "out") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(out) / "check.json").read_text())
    return found


def git(*words: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *named, *words], check=True, capture_output=True, text=True).stdout


def make_repository(*files: str) -> None:
    """A repository here, with these files in its one commit."""
    git("init", "-q", "-b", "main")
    git("add", *files)
    git("commit", "-q", "-m", "first")
