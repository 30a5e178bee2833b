"""`python -m profiler --help` beside `import torch`, in interleaved rounds."""

from __future__ import annotations

import subprocess
import sys

from tests.benchmarks.measure import interleaved, ratio, seconds

ROUNDS = 8
COMMANDS = {"help": ("-m", "profiler", "--help"), "torch": ("-c", "import torch"), "empty": ("-c", "")}


def test_help_against_import_torch() -> None:
    def run(*arguments: str) -> float:
        return seconds(lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True))

    ways = {name: lambda _, arguments=arguments: run(*arguments) for name, arguments in COMMANDS.items()}
    times = {name: values[1:] for name, values in interleaved(ways, ROUNDS).items()}  # the first round warms up
    whole = ratio(times["help"], times["torch"])
    imports = [late - early for late, early in zip(times["torch"], times["empty"], strict=True)]
    print(f"\n--help over a Python that imports torch: {whole}; over the import alone: {ratio(times['help'], imports)}")
    assert whole.low <= 0.1, f"--help takes more than a tenth of `import torch`: {whole}"
