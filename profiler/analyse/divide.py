"""Divides what records do not explain by the samples that lie there: in runs whose steps hooks found.

Recorded stretches keep their exact totals. The uncovered time, and that in `backward` and in `optimizer`, is divided by
the categories of the samples that these cover, in every step alike, so that each step still sums to its wall time.
The interval of a category is the samples' own error and, where no window saw the GIL's holder, all that is then open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from profiler.analyse.breakdown import Ledger
from profiler.analyse.categories import CODE
from profiler.analyse.covers import POOLS, Floats, Numbers, exact_covers
from profiler.analyse.evidence import NO_GIL, Evidence, on_cuda
from profiler.analyse.gil import wilson
from profiler.analyse.host import HostTimeline
from profiler.analyse.model import HOST_CATEGORIES, MIN_SAMPLES
from profiler.analyse.window import Window
from profiler.core.notice import Notice
from profiler.run.model import Run

FEW: Final = 5
"""Samples of one stretch below which those of all of them divide it: its own would give whole categories by chance."""

_RUNNING: Final = ("framework", "compute", "python")
"""What always may run: unseen it has an interval all the same; other categories were seen or are not claimed."""


@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """How one stretch is divided: its shares, and how far they may be below and above (2 x categories)."""

    shares: Floats
    chance: Floats
    doubt: Floats


def divided(plain: Ledger, run: Run, window: Window, host: HostTimeline, seen: Evidence | None) -> Ledger:
    """The ledger with nothing unexplained, as far as samples reach.

    :param plain: from the records alone.
    :param seen: None or with few samples (MIN_SAMPLES): the uncovered time stays unattributed. What is in torch's
        backward and optimizer is torch's work all the same.
    """
    exact = seen.exact if seen else exact_covers(run, window, host)
    native = CODE["framework" if on_cuda(run, host) else "compute"]
    ns = plain.ns.copy()
    ns[:, CODE["python"]] -= sum(exact[pool] for pool in POOLS) - ns[:, CODE["unattributed"]]
    ns[:, CODE["unattributed"]] = 0
    enough = seen is not None and seen.n >= MIN_SAMPLES
    chance, doubt = np.zeros((2, len(HOST_CATEGORIES))), np.zeros((2, len(HOST_CATEGORIES)))
    python_share = 0.0
    for pool in POOLS:
        part = _part(seen, pool) if seen is not None and enough else _whole(native if pool else CODE["unattributed"])
        total = float(exact[pool].sum())
        ns += _spread(exact[pool], part.shares)
        chance += (part.chance * total) ** 2
        if seen is not None and seen.gil_known:
            chance += (part.doubt * total) ** 2
        else:  # not by chance: of all stretches alike
            doubt += part.doubt * total
        python_share = python_share if pool else float(part.shares[CODE["python"]])
    ends = np.sqrt(chance) + doubt
    return replace(
        plain, ns=ns, python_share=python_share, warning=_warning(seen, exact, window), spread=_ends(ns, ends, window)
    )


def _ends(ns: Numbers, ends: Floats, window: Window) -> dict[str, tuple[float, float]]:
    """Lowest and highest ns over the window of each category that samples had a part in."""
    sums = ns.sum(axis=0).astype(np.float64)
    low, high = np.maximum(0.0, sums - ends[0]), np.minimum(window.wall_ns, sums + ends[1])
    return {name: (float(low[code]), float(high[code])) for name, code in CODE.items() if ends[:, code].any()}


def _whole(code: int) -> _Part:
    return _Part(np.eye(len(HOST_CATEGORIES))[code], *np.zeros((2, 2, len(HOST_CATEGORIES))))


def _part(seen: Evidence, pool: str) -> _Part:
    """What the samples of one stretch say; where they are few, those of all stretches that samples divide."""
    rows = seen.of(pool)
    n = seen.n * float(seen.raw[rows].sum() / seen.raw.sum())
    if n < FEW:
        rows = np.isin(seen.cover, range(len(POOLS)))
    weight = seen.raw[rows]
    if not weight.sum():
        return _whole(CODE["unattributed"])
    shares = np.asarray(weight @ seen.shares[rows] / weight.sum(), np.float64)
    doubt = np.asarray(weight @ seen.doubt[:, rows] / weight.sum(), np.float64)
    told = (shares > 0) | np.isin(np.arange(len(shares)), [CODE[name] for name in _RUNNING])
    counts = [seen.blocks.count(rows, column, n) for column in seen.shares[rows].T]
    each = zip(shares.tolist(), counts, told.tolist(), strict=True)
    ends = np.array([wilson(one, count) if known else (one, one) for one, count, known in each])
    return _Part(shares, np.abs(ends.T - shares), doubt)


def _spread(ns: Numbers, shares: Floats) -> Numbers:
    """Whole ns of each step in each category, which sum to `ns`; what rounding leaves goes to the largest."""
    parts = np.floor(ns[:, None] * shares).astype(np.int64)
    parts[:, int(shares.argmax())] += ns - parts.sum(axis=1)
    return parts


def _warning(seen: Evidence | None, exact: Mapping[str, Numbers], window: Window) -> Notice | None:
    uncovered = int(exact[""].sum()) / window.wall_ns
    if seen is None or seen.n < MIN_SAMPLES:
        count = round(seen.n) if seen else 0
        values = {"share": uncovered, "samples": count, "needed": MIN_SAMPLES, "of": "anything"}
        return Notice("unrecorded-time", values)
    return None if seen.gil_known else NO_GIL
