"""Opens damaged runs and hostile files by the command, each in a process of its own, and prints a line for each.

    python -m tests.benchmarks.damaged_files RUN [SEEDS]

Exits with 1 if one does not end with a result or with an error that names the file, within 5 s of CPU time, 700 MB of
memory and files of 100 MB. A process that needs more ends otherwise.
"""

from __future__ import annotations

import gzip
import os
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.run.damage import damages, source

_LIMITS: Final = {resource.RLIMIT_CPU: 5, resource.RLIMIT_DATA: 700 << 20, resource.RLIMIT_FSIZE: 100 << 20}
_TIMEOUT_S: Final = 120


def bombs(folder: Path, run: Path) -> Iterator[Path]:
    """Small files that unpack to much."""
    long, empty = folder / "spaces.json.gz", folder / "empties.json.gz"
    with gzip.open(long, "wb") as file:
        file.write(b'{"traceEvents":[')
        for _ in range(1000):
            file.write(b" " * (1 << 20))
    empty.write_bytes(gzip.compress(b'{"traceEvents":[' + b"{}," * 20_000_000 + b"{}]}"))
    yield from (long, empty)
    for trace in (long, empty):
        copy = Path(shutil.copytree(run, folder / f"run-{trace.name}", symlinks=True))
        shutil.copy(trace, source(copy) / "kineto.json.gz")
        yield copy
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(run / "run.json", "run.json")
        with archive.open("source-1/steps.bin", "w", force_zip64=True) as entry:
            for _ in range(6 << 10):
                entry.write(bytes(1 << 20))
    yield folder / "bomb.zip"


def _limit() -> None:
    for limit, most in _LIMITS.items():
        resource.setrlimit(limit, (most, most))


def is_fine(name: str, path: Path) -> bool:
    """Whether the command ends well with what is at `path`; prints how."""
    command = [sys.executable, "-m", "profiler", "diagnose", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        _, error = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, error = process.communicate()
    words = error.decode(errors="replace")
    is_told = words.startswith("error: ") and words.count("\n") == 1 and str(path) in words
    print(f"{name}: exit code {process.returncode} {words[-200:]!r}", flush=True)
    return (process.returncode == 0 and not words) or (process.returncode == 2 and is_told)


def main(run: Path, seeds: int) -> int:
    wrong = []
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["TMPDIR"] = temporary
        for name, damage in damages(seeds):
            copy = Path(shutil.copytree(run, folder / "run"))
            damage(copy)
            wrong += [] if is_fine(name, copy) else [name]
            shutil.rmtree(copy)
        for path in bombs(folder, run):
            wrong += [] if is_fine(path.name, path) else [path.name]
    print(f"wrong: {', '.join(wrong) or 'none'}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int((sys.argv[2:] or ["0"])[0])))
