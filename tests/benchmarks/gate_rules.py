"""Other tools' rules for "it became slower", on arrays of step times: each decides as the tool's own code does.

Every rule takes times of the base and of the candidate, with samples along the last axis, and returns where it would
report a slow-down. tests/benchmarks/gate_peers.py compares the rules with the tools' own code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

THRESHOLD = 0.05
"""What a team that wants to catch 5% would write."""
BENCHSTAT_ALPHA = 0.05
"""`Thresholds.CompareAlpha`, golang.org/x/perf benchmath/sample.go; the default of `benchstat -alpha`."""
BENCHSTAT_EXACT = 50
"""Largest sample that is tested exactly: github.com/aclements/go-moremath stats/utest.go, MannWhitneyExactLimit."""
ASV_P = 0.002
"""`p_threshold` of `is_different`, asv/_stats.py."""
ASV_EXACT = 20
"""Largest sample for which asv computes p exactly."""
ASV_FACTOR = 1.1
"""Default of `--factor`, asv/commands/common_args.py."""
TRACEML_VERDICT = 0.03
"""`CompareDecisionPolicy.step_avg_pct_moderate` of traceml-ai 0.5.0, reporting/compare/policy.py."""


@dataclass(frozen=True)
class Rule:
    key: str
    name: str
    source: str
    """File and version that it was taken from."""
    fails: Callable[[Array, Array], Flags]
    note: str = ""
    """How it was taken over."""


def mean_throughput(base: Array, candidate: Array) -> Flags:
    """The mean speed fell by more than 5%."""
    return np.asarray(base.mean(axis=-1) / candidate.mean(axis=-1) < 1 - THRESHOLD)


def mean_time(base: Array, candidate: Array) -> Flags:
    """`PercentageRegressionCheck`: current / compared * 100 - 100 > 5, of the mean."""
    return np.asarray(candidate.mean(axis=-1) / base.mean(axis=-1) > 1 + THRESHOLD)


def least_time(base: Array, candidate: Array) -> Flags:
    """`PercentageRegressionCheck` of the minimum."""
    return np.asarray(candidate.min(axis=-1) / base.min(axis=-1) > 1 + THRESHOLD)


def traceml_verdict(base: Array, candidate: Array) -> Flags:
    """`StepTimeRegressionRule`: the mean step time rose by 3% or more."""
    return np.asarray(candidate.mean(axis=-1) / base.mean(axis=-1) - 1 >= TRACEML_VERDICT)


def benchstat(base: Array, candidate: Array) -> Flags:
    """`AssumeNothing.Compare` and `FormatDelta`: the medians differ with p <= alpha; here only a rise counts."""
    exact = max(base.shape[-1], candidate.shape[-1]) <= BENCHSTAT_EXACT
    significant = mann_whitney(base, candidate, exact=exact, continuity=True) <= BENCHSTAT_ALPHA
    return np.asarray(significant & (_median_rise(base, candidate) > 1))


def benchstat_by_5(base: Array, candidate: Array) -> Flags:
    """What scripts around benchstat do: they fail if the displayed delta is above 5%."""
    return np.asarray(benchstat(base, candidate) & (_median_rise(base, candidate) > 1 + THRESHOLD))


def asv_continuous(factor: float) -> Callable[[Array, Array], Flags]:
    """`_is_result_better` with samples, which `asv continuous` keeps: U test, and the median above the factor."""

    def fails(base: Array, candidate: Array) -> Flags:
        first, second = base.shape[-1], candidate.shape[-1]
        if 1 / comb(first + second, min(first, second)) >= ASV_P:
            different = _intervals_apart(base, candidate)
        else:
            different = mann_whitney(base, candidate, exact=max(first, second) <= ASV_EXACT, continuity=False) < ASV_P
        return np.asarray(different & (np.median(base, axis=-1) < np.median(candidate, axis=-1) / factor))

    return fails


def asv_compare(factor: float) -> Callable[[Array, Array], Flags]:
    """`_is_result_better` without samples, which `asv run` does not store: the 99% intervals of both medians must be
    apart."""

    def fails(base: Array, candidate: Array) -> Flags:
        slower = np.median(base, axis=-1) < np.median(candidate, axis=-1) / factor
        return np.asarray(_intervals_apart(base, candidate) & slower)

    return fails


_PYTEST = "pytest-benchmark 5.3.1, utils.py, PercentageRegressionCheck"
_BENCHSTAT = "golang.org/x/perf, benchmath/anone.go and sample.go"
_ASV = "asv 0.6.6, commands/compare.py, _is_result_better, and _stats.py, is_different"
_TRACEML = "traceml-ai 0.5.0, reporting/compare"
RULES = (
    Rule("mean", "mean dropped > 5%", "the plain comparison of two means", mean_throughput, "It uses steps a second."),
    Rule("pytest-min", "pytest-benchmark min:5%", _PYTEST, least_time, "`--benchmark-compare-fail=min:5%`."),
    Rule("pytest-mean", "pytest-benchmark mean:5%", _PYTEST, mean_time, "`--benchmark-compare-fail=mean:5%`."),
    Rule(
        *("traceml-5", "TraceML compare, limit 5%", f"{_TRACEML}/policy.py, evaluate_step_time_ci_result", mean_time),
        note="`traceml compare A B --max-step-time-regression-pct 5` (exit code 4) compares mean step times of runs.",
    ),
    Rule(
        *("traceml-3", "TraceML compare, verdict", f"{_TRACEML}/verdict.py, StepTimeRegressionRule", traceml_verdict),
        note="It prints REGRESSION from 3% on and fails no job.",
    ),
    Rule(
        *("benchstat", "benchstat", _BENCHSTAT, benchstat),
        note="It shows a rise instead of `~` where the U test gives p ≤ 0.05. benchstat itself fails no job.",
    ),
    Rule("benchstat-5", "benchstat, delta > 5%", _BENCHSTAT, benchstat_by_5, "The medians must also be 5% apart."),
    Rule(
        *("asv-1.1", "asv continuous", _ASV, asv_continuous(ASV_FACTOR)),
        note="The U test must give p < 0.002, and the medians must differ by the default factor of 1.1.",
    ),
    Rule("asv-1.05", "asv continuous -f 1.05", _ASV, asv_continuous(1 + THRESHOLD), "The factor is 1.05."),
    Rule(
        *("asv-stored", "asv compare -f 1.05", _ASV, asv_compare(1 + THRESHOLD)),
        note="It compares results that `asv run` stored, without samples: the medians' 99% intervals must be apart.",
    ),
)


def mann_whitney(base: Array, candidate: Array, *, exact: bool, continuity: bool) -> Array:
    """Two-sided p of the U test, row by row, from the exact distribution of U without ties or from a normal one."""
    from scipy.stats import mannwhitneyu

    method = "exact" if exact else "asymptotic"
    found = mannwhitneyu(base, candidate, use_continuity=continuity, axis=-1, method=method)
    return np.asarray(found.pvalue, np.float64)


def _median_rise(base: Array, candidate: Array) -> Array:
    return np.asarray(np.median(candidate, axis=-1) / np.median(base, axis=-1))


def _intervals_apart(base: Array, candidate: Array) -> Flags:
    low_base, high_base = _interval(base)
    low, high = _interval(candidate)
    return np.asarray((high_base < low) | (low_base > high))


def _interval(samples: Array) -> tuple[Array, Array]:
    """asv_runner/statistics.py, quantile_ci: order statistics around the median that contain it with 99%."""
    ordered = np.sort(samples, axis=-1)
    low, high = _ranks(samples.shape[-1])
    return ordered[..., low], ordered[..., high]


@cache
def _ranks(number: int) -> tuple[int, int]:
    """:raises ValueError: there are too few samples, and asv would use its Laplace posterior."""
    below = np.cumsum([comb(number, rank) / 2**number for rank in range(number)])
    low, high = np.flatnonzero(below <= 0.005), np.flatnonzero(below >= 0.995)
    if not len(low) or not len(high):
        raise ValueError(f"{number} samples have no interval of order statistics")
    return int(low[-1]), int(high[0])
