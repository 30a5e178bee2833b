"""The cache of compiled functions, shared by processes that compile at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fakes.programs import ROOT

TWO = """
import os, sys
from numba.core.caching import IndexDataCacheFile
{ours}
EACH = 200
file = IndexDataCacheFile(sys.argv[1], "function", "stamp")
ready, go = os.pipe()
children = []
for child in range(2):
    children.append(os.fork())
    if children[-1] == 0:
        os.close(go)
        os.read(ready, 1)  # both begin when the pipe is closed
        for number in range(EACH):
            file.save((child, number), f"code of {{child}}, {{number}}")
        os._exit(0)
os.close(go)
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
wanted = [(child, number) for child in range(2) for number in range(EACH)]
print([key for key in wanted if file.load(key) != "code of {{}}, {{}}".format(*key)])
"""


def wrong(folder: Path, ours: str) -> str:
    """Keys whose code is missing or another's, after two processes saved theirs side by side."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", TWO.format(ours=ours), str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_each_finds_its_own_code_again(tmp_path: Path) -> None:
    assert wrong(tmp_path / "ours", "import reference_trainer.jit") == "[]"
