"""The breakdown of the bundled trainer against independent stack samples, and what of it has no evidence.

The samples are classified by their frames alone, without marks or calls: two ways of seeing the same time.
"""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.sampling.stacks import stack_shares
from profiler.run.load import load
from profiler.run.model import Site

SECONDS = os.environ.get("SECONDS", "20")
MOST_APART = 0.03
MOST_UNATTRIBUTED = 0.02
# The innermost frame of the device's own calls decides, whatever runs below it; else the innermost known file.
DEVICE = {
    "upload": "launch",  # its first part is the allocation; the copy is _upload
    "upload_into": "copy",
    "_upload": "copy",
    "download": "copy",
    "download_into": "copy",
    "_download": "copy",
    "fetch_into": "copy",
    "wait": "sync",
    "_wait": "sync",
    "empty": "launch",
    "launch": "launch",
    "_launch": "launch",
    "matmul": "launch",
}
INPUT = ("tokenizer.py", "chunks.py", "corpus.py")


def classify(frames: tuple[Site, ...]) -> str:
    """Category of one stack."""
    if any(site.function.endswith(("drain", "_own_time")) for site in frames):
        return "python"  # recording itself, whatever call it came up in
    for site in reversed(frames):
        function = site.function.rpartition(".")[2]
        if Path(site.file).name == "host.py" and function in DEVICE:
            line = linecache.getline(site.file, site.line)
            waiting = "queue.download(" in line or "queue.wait(" in line
            return "sync" if waiting else DEVICE[function]
    return "input" if any(Path(site.file).name in INPUT for site in frames) else "python"


@pytest.mark.parametrize("variant", ["as-found", "fixed"])
def test_shares_agree(variant: str, tmp_path: Path) -> None:
    out = tmp_path / variant
    target = [sys.executable, "-m", "reference_trainer.lm", "--variant", variant, "--device", "host"]
    record = [sys.executable, "-m", "profiler", "run", "--level", "standard", "--out", str(out), "--"]
    subprocess.run([*record, *target, "--seconds", SECONDS], check=True, capture_output=True)
    run = load(out)
    analysis = analyse(run)
    wall = analysis.measures["step_time"].value
    assert wall
    ledger = {name: (measure.value or 0.0) / wall for name, measure in analysis.breakdown.items()}
    samples = stack_shares(run, classify)
    print(f"\n{variant}: {len(run.stacks)} stacks; category, breakdown, samples")
    for name in sorted({*ledger, *samples}):
        print(f"  {name:13} {ledger.get(name, 0):7.2%} {samples.get(name, 0):7.2%}")
    assert abs(sum(ledger.values()) - 1) < 1e-9
    assert ledger["unattributed"] <= MOST_UNATTRIBUTED
    apart = {name: abs(ledger.get(name, 0) - samples.get(name, 0)) for name in samples}
    assert max(apart.values()) <= MOST_APART, apart
