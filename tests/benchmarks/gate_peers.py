"""Compare our copies of other tools' rules with the tools' own code, on samples of live rounds.

    python -m tests.benchmarks.gate_peers reports/gate/gates.jsonl.gz --python PEERS/bin/python

PEERS is an environment with `pip install asv asv-runner pytest-benchmark` and `pip install --no-deps traceml-ai`.
Prints how many decisions agree. benchstat is a Go program and is not run; its rule follows its source.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.gate_live import read
from tests.benchmarks.gate_resample import by_experiment
from tests.benchmarks.gate_rules import RULES
from tests.benchmarks.gate_samples import Samples, samples

MOST = 400
"""Rows of each experiment and way of measuring."""

THEIRS = """
import json, sys
from importlib.metadata import version
from asv.commands.compare import _is_result_better
from asv_runner.statistics import compute_stats
from pytest_benchmark.utils import parse_compare_fail
from traceml_ai.reporting.compare.policy import evaluate_step_time_ci_result
from traceml_ai.reporting.compare.verdict import CompareVerdictContext, StepTimeRegressionRule

def mean(some):
    return sum(some) / len(some)

def asv(base, candidate, factor, samples):
    a, b = (compute_stats(some, 1) for some in (base, candidate))
    kept = [(one[1], some if samples else None) for one, some in ((a, base), (b, candidate))]
    return _is_result_better(a[0], b[0], *kept, factor)

def decide(base, candidate):
    fields = [{"min": min(some), "mean": mean(some)} for some in (candidate, base)]
    percent = (mean(candidate) - mean(base)) / mean(base) * 100
    metric = {"lhs": mean(base), "rhs": mean(candidate), "pct_change": percent}
    context = CompareVerdictContext({"step_time": {"metrics": {"step_time_ms": metric}}})
    return {
        "pytest-min": bool(parse_compare_fail("min:5%").fails(*fields)),
        "pytest-mean": bool(parse_compare_fail("mean:5%").fails(*fields)),
        "traceml-5": evaluate_step_time_ci_result(delta_pct=percent, threshold_pct=5.0) == "SLOWER_IN_THIS_PAIR",
        "traceml-3": StepTimeRegressionRule().evaluate(context) is not None,
        "asv-1.1": asv(base, candidate, 1.1, True),
        "asv-1.05": asv(base, candidate, 1.05, True),
        "asv-stored": asv(base, candidate, 1.05, False),
    }

names = ("asv", "asv-runner", "pytest-benchmark", "traceml-ai")
decided = [decide(*pair) for pair in json.load(sys.stdin)]
print(json.dumps({"versions": {name: version(name) for name in names}, "decided": decided}))
"""


def decided(python: str, rows: Samples) -> Mapping[str, Any]:
    """The decisions of the tools' own code for each row, and their versions."""
    pairs = [[base.tolist(), candidate.tolist()] for base, candidate in zip(rows.base, rows.candidate, strict=True)]
    done = subprocess.run([python, "-c", THEIRS], input=json.dumps(pairs), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", type=Path)
    parser.add_argument("--python", required=True, help="of an environment that has the tools")
    args = parser.parse_args()
    agreed: dict[str, list[bool]] = {}
    versions: Mapping[str, str] = {}
    for gates in by_experiment(read(args.raw)).values():
        for every in samples(gates).values():
            some = np.unique(np.linspace(0, len(every) - 1, min(MOST, len(every))).astype(np.int64))
            rows = Samples(every.base[some], every.candidate[some], every.gates[some])
            theirs = decided(args.python, rows)
            versions = theirs["versions"]
            for rule in RULES:
                if rule.key in theirs["decided"][0]:
                    ours, others = rule.fails(rows.base, rows.candidate), [row[rule.key] for row in theirs["decided"]]
                    agreed.setdefault(rule.key, []).extend((ours == np.array(others)).tolist())
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    for key, same in agreed.items():
        print(f"{key:12} {sum(same)} of {len(same)} decisions the same")
    sys.exit(any(not all(same) for same in agreed.values()))


if __name__ == "__main__":
    main()
