"""`python -m profiler --help` beside `import torch`, in interleaved pairs."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.benchmarks.measure import ratio

PAIRS = 7


def _seconds(*arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - began


def test_help_against_import_torch() -> None:
    commands = {"help": ("-m", "profiler", "--help"), "torch": ("-c", "import torch"), "empty": ("-c", "")}
    for command in commands.values():
        _seconds(*command)
    times = {name: [] for name in commands}
    for _ in range(PAIRS):
        for name, command in commands.items():
            times[name].append(_seconds(*command))
    whole = ratio(times["help"], times["torch"])
    bare = [late - early for late, early in zip(times["torch"], times["empty"], strict=True)]
    print(f"\n--help over a Python that imports torch: {whole}; over the import alone: {ratio(times['help'], bare)}")
    assert whole.low <= 0.1, f"--help takes more than a tenth of `import torch`: {whole}"
