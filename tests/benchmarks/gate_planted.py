"""How many planted faults the gate by line finds, and how often it fails without one, counted within this process.

python -m tests.benchmarks.gate_planted
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.fakes.planted import ON_CPU, Gate, count_on_cpu, report

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        for name, value in report(Gate(Path(folder)), Gate(Path(other), ON_CPU, count_on_cpu)).items():
            print(f"{name:32} {value}")
