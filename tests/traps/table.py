"""The page of the results of `make accuracy`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from profiler.analyse.finding import GainMethod

_HEAD = """# Accuracy of findings

Written by `make accuracy`, never by hand. The programs are in `tests/traps/scripts`; each has an illness that can be
switched off, or none. Truth is what was switched. *Right*: the rule of the illness comes first (of several illnesses:
all are among as many first findings); of a healthy program no finding claims a gain of 1.1 or more. *Line*: the first
finding names a line that is at fault. *Predicted* is the gain of the finding of the illness itself, or of the first
one where it has none, from a recorded run; *real* is how many times as fast unrecorded steps are without the illness,
measured in blocks that alternate, with its interval of 95%. *Busy*: beside a busy loop on each core. *Quota*: in a
control group with 0.6 cores, so that `throttled` must be among the first findings, too; the others are judged as
without it.

Predicted and real are compared where there is one illness, its own rule predicts a gain, and the real gain is 1.1 or
more. A *bound* is the step without the cost; in an *estimate*, a part of the cost, or of what the cure needs instead,
is assumed. *At least* is the step without the cost where the cure makes the rest faster too, as fewer threads do: it is
true where the real gain is not smaller, within 5%. *Up to about* is the step without the cost where the program needs a
part of the work: it is true where the real gain is not larger, within 5%. The cures of these programs leave all of the
work out, and then the rest becomes faster, too. Beside bounds and estimates stand, for the same programs, *no gain*, a
prediction of 1, and *plain Amdahl*, 1 / (1 - share) with the share of the recorded step that the cause takes: what
recording, waits for a core and the cure itself cost is not taken out. Left out are `too-few-workers`
and `input-small-batch`, whose findings predict the gain of another cure: about 15 workers and batches of 32 items,
while the cured programs have 8 workers and batches of 64.
"""
_LEAST_REAL: Final = 1.1
_OTHER_CURE: Final = ("too-few-workers", "input-small-batch")
"""Cases whose finding suggests, and predicts the gain of, another cure than that of the program."""
_LEAST_LEFT: Final = 1e-3
"""Least share of a step that is taken to remain, as in predictions."""
_ERROR: Final = 0.05
"""Relative error of a measured gain within which a lower or an upper bound is true."""


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The results as Markdown."""
    head = ("| case | condition | first finding | right | line | predicted | real |", "|---|---|---|---|---|---:|---:|")
    lines = [_HEAD, *_verdicts(rows), *_gains(rows), "", *head]
    for row in rows:
        line = {None: "", True: "yes", False: "**no**"}[row["has_line"]]
        own = own_gain(row)
        gain = own["factor"] if own else row["gain"]
        bound = f"{gain:.2f}" if gain else ""
        real = with_interval(row["real"], row["real_low"], row["real_high"]) if row["real"] else ""
        right = "yes" if row["is_right"] else "**no**"
        cells = (row["case"], row["condition"], row["first"] or "none", right, line, bound, real)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for condition in dict.fromkeys(row["condition"] for row in rows):
        these = [row for row in rows if row["condition"] == condition]
        for name, part in (
            ("one illness", [row for row in these if len(row["ill"]) == 1]),
            ("several", [row for row in these if len(row["ill"]) > 1]),
            ("healthy", [row for row in these if not row["ill"]]),
        ):
            if part:
                lines.append(f"- {condition}, {name}: right {sum(row['is_right'] for row in part)} of {len(part)}")
        judged = [row["has_line"] for row in these if row["has_line"] is not None]
        if judged:
            lines.append(f"- {condition}, lines: {sum(judged)} of {len(judged)}")
    return lines


def _gains(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    errors: dict[str, list[float]] = {}
    lower: list[float] = []
    upper: list[float] = []
    for row in rows:
        own = own_gain(row)
        if row["case"] in _OTHER_CURE or not own or row["condition"] != "quiet" or (row["real"] or 0.0) < _LEAST_REAL:
            continue
        if own.get("is_least"):
            lower.append(math.log(row["real"] / own["factor"]))
        else:
            if own.get("is_most"):
                upper.append(math.log(row["real"] / own["factor"]))
            share = next(each["share"] for each in row["findings"] if own in each["gains"])
            predictions = {
                own["method"]: own["factor"],
                "no gain": 1.0,
                "plain Amdahl": 1 / max(_LEAST_LEFT, 1 - share),
            }
            if own["method"] == GainMethod.BOUND:
                predictions[f"bound (*{'up to about' if own.get('is_most') else 'about'}*)"] = own["factor"]
            for name, factor in predictions.items():
                errors.setdefault(name, []).append(abs(math.log(factor / row["real"])))
    for method, each in errors.items():
        values = f"median {median(each):.2f}, P90 {quantile(each, 0.9):.2f}, largest {max(each):.2f} of {len(each)}"
        lines.append(f"- {method} against real gain, |ln|: {values}")
    if lower:
        true = sum(each >= -_ERROR for each in lower)
        more = f"{math.exp(median(lower)):.2f} times as large in the median, {math.exp(max(lower)):.2f} times at most"
        lines.append(f"- at least: true in {true} of {len(lower)}; the real gain is {more}")
    if upper:
        true = sum(each <= _ERROR for each in upper)
        lines.append(f"- up to about: true in {true} of {len(upper)}; these are bounds or estimates, too")
    return lines


def with_interval(gain: float, low: float, high: float) -> str:
    """`1.56 (1.48 to 1.63)`: a gain and its interval of 95%."""
    return f"{gain:.2f} ({low:.2f} to {high:.2f})"


def own_gain(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The gain that the finding of the only illness of a case predicts; None where there is no such one."""
    own = [each for each in row["findings"] if [each["rule"]] == row["ill"] and each["gains"]]
    return own[0]["gains"][0] if own else None


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies, between the neighbours in proportion."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
