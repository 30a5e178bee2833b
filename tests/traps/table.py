"""The page of the results of `make accuracy`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

_HEAD = """# Accuracy of findings

Written by `make accuracy`, never by hand. The programs are in `tests/traps/scripts`; each has an illness that can be
switched off, or none. Truth is what was switched. *Right*: the rule of the illness comes first (of several illnesses:
all are among as many first findings); of a healthy program no finding claims a gain of 1.1 or more. *Line*: the first
finding names a line that is at fault. *Predicted* is the gain of the first finding, from a recorded run; *real* is
the median ratio of steps per second without and with the illness, over three interleaved pairs of unrecorded runs.
*Busy*: beside a busy loop on each core.
"""


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The results as Markdown."""
    head = ("| case | condition | first finding | right | line | predicted | real |", "|---|---|---|---|---|---:|---:|")
    lines = [_HEAD, *_totals(rows), "", *head]
    for row in rows:
        line = {None: "", True: "yes", False: "**no**"}[row["has_line"]]
        bound, real = (f"{row[name]:.2f}" if row[name] else "" for name in ("gain", "real"))
        right = "yes" if row["is_right"] else "**no**"
        cells = (row["case"], row["condition"], row["first"] or "none", right, line, bound, real)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _totals(rows: Sequence[Mapping[str, Any]]) -> list[str]:
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
    single = [row for row in rows if row["real"] and row["gain"] and row["ill"] == [row["first"]]]
    if errors := sorted(abs(math.log(row["gain"] / row["real"])) for row in single):
        middle, largest = median(errors), errors[-1]
        lines.append(
            f"- predicted against real gain, |ln|: median {middle:.2f}, largest {largest:.2f} of {len(errors)}"
        )
    return lines
