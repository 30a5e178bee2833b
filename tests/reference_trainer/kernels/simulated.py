"""Checks of CUDA kernels in Numba's simulator, run in a program of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.fakes.programs import ROOT


def errors_of(module: str, *names: str) -> dict[str, str]:
    """Name of each check of a module, or of the named ones -> its error, empty where it passed."""
    done = subprocess.run(
        [sys.executable, "-m", module, *names],
        cwd=ROOT,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return {result["name"]: result["error"] for result in results}
