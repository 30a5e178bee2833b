"""One wait more in a step: found on every run, with its line, on a machine without a GPU. Run by hand.

RUNS=20 pytest tests/benchmarks/bench_gate_item.py -m '' -s
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS = int(os.environ.get("RUNS", "20"))
TORCH = (
    "tests/benchmarks/overhead_scripts/transformer.py",
    "            optimizer.step()\n",
    "            loss.item()\n",
)
LM = (
    "reference_trainer/lm/loop.py",
    "            result = self._forward.collect()\n",
    "            self._device.synchronize()\n",
)
COMMANDS = {
    TORCH: [sys.executable, TORCH[0]],
    LM: [
        *(sys.executable, "-m", "reference_trainer.lm", "--variant", "fixed", "--device", "host", "--preset", "tiny"),
        *("--corpus", ".ci/corpus.txt", "--warmup-seconds", "0", "--seconds", "600"),
    ],
}


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OVERHEAD_STEPS": "100000", "OMP_NUM_THREADS": "1"}
    environment.pop("CI", None)
    command = [sys.executable, "-c", "from profiler.__main__ import main; import sys; sys.exit(main())", "check"]
    return subprocess.run([*command, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("edit", [TORCH, LM], ids=["a torch script", "the bundled trainer"])
def test_found_on_every_run(edit: tuple[str, str, str], tmp_path: Path) -> None:
    for part in ("reference_trainer", "tests/benchmarks/overhead_scripts", ".ci"):
        shutil.copytree(ROOT / part, tmp_path / part)
    file, behind, added = edit
    words = ["--baseline", "b.json", "--set", "steps=10", "--set", "warmup=2"]
    made = check(tmp_path, *words, "--update", "--", *COMMANDS[edit])
    assert made.returncode == 0, made.stderr
    same = [check(tmp_path, *words, "--", *COMMANDS[edit]).returncode for _ in range(RUNS)]
    source = (tmp_path / file).read_text()
    assert source.count(behind) == 1
    (tmp_path / file).write_text(source.replace(behind, behind + added))
    line = (source[: source.index(behind)] + behind).count("\n") + 1
    found = 0
    for _ in range(RUNS):
        done = check(tmp_path, *words, "--", *COMMANDS[edit])
        said = " ".join(done.stdout.split())
        named = re.search(r"rose from \S+ to \S+ per step at (\S+):(\d+)", said)
        found += done.returncode == 1 and bool(named) and named[2] == str(line) and named[1].endswith(Path(file).name)
    print(f"\n{file}: unchanged {same.count(0)} of {RUNS} PASS; one wait more: {found} of {RUNS} FAIL at line {line}")
    assert (same.count(0), found) == (RUNS, RUNS)
