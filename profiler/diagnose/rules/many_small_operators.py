"""Operators so small that torch takes longer to call them than they take to compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from profiler.analyse.finding import KnockOut
from profiler.analyse.model import LineCost, OperatorLine
from profiler.diagnose.rule import Claim, Cost, Rule, StepCosts, largest_sites
from profiler.run.model import Site


def judge(costs: StepCosts) -> Claim | None:
    """The time of computing at each line, by the share of its operators' time that small ones take; and torch's own
    Python around them. Where operators were not counted, that Python only. Other rules judge loaders and optimizers."""
    if costs.has_queue:  # what its kernels take is known then: other rules judge it
        return None
    rows = [row for row in costs.analysis.operators if not row.caller]
    computing = [_part(line, share) for line, share in _small_lines(costs, rows)]
    claimed = {"compute": Cost(*(sum(each) for each in zip(*computing, strict=True)))} if computing else {}
    framework = costs.cost("framework")
    if framework.seconds:
        claimed["framework"] = framework.part(_small_share(rows) if rows else 1.0)
    values: dict[str, float | None] = {"operators": costs.analysis.value("launches_per_step"), "small": None}
    if rows:
        values = {"operators": sum(row.count for row in rows), "small": sum(row.small_count for row in rows)}
    return Claim(claimed, _sites(rows) or costs.sites("framework"), values) if claimed else None


def _small_lines(costs: StepCosts, rows: Sequence[OperatorLine]) -> list[tuple[LineCost, float]]:
    """The lines with computing, each with the share of small operators in it; where no line is known, as with
    very many operators, the share in all."""
    backward = costs.phase("backward")
    in_backward = _place(backward.site) if backward else None
    places: dict[object, list[OperatorLine]] = {}
    for row in rows:
        places.setdefault(in_backward if row.is_backward else _place(row.site), []).append(row)
    unknown = rows if all(row.site is None for row in rows) else ()
    return [(line, _small_share(places.get(_place(line.site), unknown))) for line in costs.analysis.lines]


def _place(site: Site | None) -> tuple[str, int] | None:
    """File and line: two sources may name the function differently."""
    return (site.file, site.line) if site else None


def _small_share(rows: Iterable[OperatorLine]) -> float:
    seconds = small = 0.0
    for row in rows:
        seconds, small = seconds + row.seconds, small + row.small_seconds
    return small / seconds if seconds else 0.0


def _part(line: LineCost, share: float) -> tuple[float, float, float]:
    """Seconds of computing in small operators at a line, with the ends of their interval."""
    seconds = share * line.categories.get("compute", 0.0)
    low, high = (line.low / line.share, line.high / line.share) if line.share else (1.0, 1.0)
    return seconds, seconds * low, seconds * high


def _sites(rows: Iterable[OperatorLine]) -> tuple[Site, ...]:
    """The lines that call most small operators."""
    counts = Counter[Site]()
    for row in rows:
        if row.site is not None:
            counts[row.site] += row.small_count
    return largest_sites(site for site, count in counts.most_common() if count)


PLUGIN = Rule(
    "many-small-operators",
    "Many small operators: calling them takes longer than what they compute",
    (
        "{share:share} of each step is calling operators.",
        "The host calls {operators:count} of them per step.",
        "{small:count} of them take less than 20 µs each.",
    ),
    "Use fewer and larger operators: larger batches, one operator instead of a loop, torch.compile.",
    judge,
    threshold_source="A tenth: some of this time remains in every program.",
    threshold=0.1,
    is_general=True,
    knock_out=KnockOut.STATEMENT,
)
