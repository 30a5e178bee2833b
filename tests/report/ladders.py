"""Made-up ladders of fixes for the tests of the report: nothing in here was measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison, Ratio, Side
from profiler.analyse.model.measures import Measure, Series
from reference_trainer.report.ladder import Ladder, LadderRow, comparison_ladder
from tests.fakes.sentences import note
from tests.report import samples

# fix: what it removes, its rule, its factor alone, on top of those before it, on top of all others
# fmt: off
CURES: dict[str, tuple[str, str, float, float, float]] = {
    "batch-tokenize": ("one crossing into the tokenizer per sample", "inline-tokenization", 1.002, 1.002, 1.04),
    "async": ("two syncs and three copies per token: the host waits for all", "per-token-sync", 2.1, 2.1, 9.2),
    "batch-embed": ("a copy and an allocation per token", "tiny-copies", 1.31, 1.45, 1.9),
    "batch-recurrence": ("a launch per token and layer", "many-launches", 1.62, 3.4, 6.3),
    "batch-decode": ("a launch per token", "many-launches", 1.48, 2.9, 4.1),
    "device-loss": ("a copy per token back to the host", "tiny-copies", 1.12, 1.51, 1.33),
    "pooled": ("allocations in steady state", "allocations", 1.08, 1.004, 1.01),
    "zero-copy": ("fresh vectors, lists, and pageable copies that are staged", "pageable-copies", 0.99, 0.93, 0.94),
    "prefetch": ("waiting for the upload", "no-overlap", 1.09, 1.14, 1.13),
    "quiet-logging": ("a read-back of metrics every chunk", "chatty-logging", 0.998, 1.012, 1.008),
    "parallel-tokenize": ("device time lost to tokenization in line with it", "inline-tokenization", 1.01, 1.22, 1.22),
    "blocking-wait": ("a host core that spins while it waits for the device", "spinning-wait", 0.97, 0.998, 1.001),
}
# fmt: on
NEEDS = {"prefetch": ("async", "device-loss", "zero-copy"), "quiet-logging": ("async", "device-loss")}
BASE = 39_300.0
REASON = "does other work: no like-for-like ratio"
_NOISE = 0.03


def gain(value: float, spread: float = _NOISE) -> Ratio:
    """A ratio over 7 rounds whose interval is `spread` to either side."""
    low, high = value * math.exp(-spread), value * math.exp(spread)
    return Ratio("tokens_per_s", value, low, high, 7, different=not low <= 1 <= high)


def none(reason: str) -> Ratio:
    """A ratio that was not measured."""
    return Ratio("tokens_per_s", None, None, None, 0, different=False, reason=note(reason))


def measures(speed: float, tokens: int = 3000) -> dict[str, Measure]:
    """Throughput and time of a step of a row, with the range over its runs."""
    time = tokens / speed
    return {
        "tokens_per_s": Measure("tokens_per_s", speed, "tokens/s", 0.97 * speed, 1.02 * speed, 7),
        "step_time": Measure("step_time", time, "s", time / 1.02, time / 0.97, 7),
        "host_cpu": Measure("host_cpu", 0.75, "cores"),
        "device_cpu": Measure("device_cpu", 0.5, "cores"),
    }


def row(kind: str, fix: str, worth: Ratio, total: float, **another: Any) -> LadderRow:
    """A row of a ladder."""
    labels = {"cumulative": f"+ {fix}", "without": f"without {fix}", "alone": f"alone {fix}"}
    removes, rule = CURES[fix][:2] if fix in CURES else ("", "")
    against = {"without": "fixed", "instead": "fixed", "work": ""}.get(kind, "as-found")
    label = labels.get(kind, fix)
    fields: dict[str, Any] = {"label": label, "program": label, "also": (), "fixes": (fix,), "removes": removes}
    fields |= {"rule": rule, "measures": measures(BASE * total), "against": against, "total": gain(total)}
    if kind == "cumulative" and fix == "batch-embed":
        fields["predicted"] = gain(1.4)
    return LadderRow(kind=kind, fix=fix, gain=worth, **(fields | another))


def learner(steps: int = 240, rate: float = 31.0) -> Analysis:
    """A run that learns: its loss falls from ln V, with text held out now and then."""
    points = range(steps)
    loss = [1.9 + 3.6 * math.exp(-i / 40) + 0.05 * math.sin(9.7 * i) for i in points]
    accuracy = [0.31 * (1 - math.exp(-i / 55)) + 0.01 * math.sin(7.1 * i) for i in points]
    blocked = [i for i in points if i % 24 == 0]
    series = [
        ("loss", points, [max(0.0, value) for value in loss]),
        ("accuracy", points, [max(0.0, value) for value in accuracy]),
        ("heldout_loss", blocked, [1.98 + 3.56 * math.exp(-i / 42) for i in blocked]),
        ("heldout_accuracy", blocked, [0.29 * (1 - math.exp(-i / 58)) for i in blocked]),
    ]
    model = {"width": 32, "layers": 2, "vocabulary": 256}
    facts = {"work": "learning", "model": model, "yardsticks": yardsticks()}
    ends = {"loss": 2.4, "accuracy": 0.24, "heldout_loss": 2.3, "heldout_accuracy": 0.23}
    found = {
        **measures(90_000.0),
        "steps": Measure("steps", float(steps), "steps"),
        "steps_per_s": Measure("steps_per_s", rate, "steps/s"),
        **{name: Measure(name, value, "1") for name, value in ends.items()},
    }
    curves = tuple(Series(name, "1", tuple(i / rate for i in at), tuple(y)) for name, at, y in series)
    return Analysis(samples.info("learn", **facts), found, {}, {}, series=curves, verdict="SYNTHETIC: it learns.")


def yardsticks() -> list[dict[str, object]]:
    """The results of this model and of others, as the trainer states them."""
    rows = (
        ("this model", 1.98, 0.29, 21_632, 720_000, 10.5),
        ("2-gram counts", 4.05, 0.185, 9_000, 200_000, None),
        ("3-gram counts", 2.4, 0.31, 40_000, 200_000, None),
        ("torch.nn.GRU", 1.75, 0.33, 30_000, 720_000, 31.0),
    )
    names = ("name", "loss", "accuracy", "parameters", "tokens", "cpu_s")
    return [dict(zip(names, row, strict=True)) for row in rows]


def stuck() -> tuple[Series, ...]:
    """A loss that stays stuck, as as-found's does."""
    times = tuple(0.15 * i for i in range(20))
    loss = tuple(0.984 + 0.003 * math.sin(5 * t) for t in times)
    return (Series("loss", "1", times, loss), Series("accuracy", "1", times, tuple(1 - value for value in loss)))


def ladder() -> Ladder:
    """Twelve fixes, one alternative, one row of other work, one other program, and two that cannot run here."""
    rows, full, names = (
        [row("baseline", "", gain(1.0), 1.0, label="as-found", fixes=())],
        1.0,
        [],
    )
    for name, (*_, added, _on_top) in CURES.items():
        full *= added
        names.append(name)
        rows.append(row("cumulative", name, gain(added), full, fixes=tuple(names)))
    for name, (*_, on_top) in CURES.items():
        needing = tuple(another for another, needs in NEEDS.items() if name in needs)
        rows.append(row("without", name, gain(on_top), full / on_top, also=needing))
    for name, (*_, alone, _added, _on_top) in CURES.items():
        rows.append(row("alone", name, gain(alone), alone, also=NEEDS.get(name, ())))
    instead = ("batch-tokenize", "parallel-tokenize")
    rows.append(row("instead", "pretokenize", gain(1.07), 1.07 * full, also=instead, removes="all tokenization"))
    work = row("work", "learn", none(REASON), 2.3, analysis=learner(), also=("quiet-logging",))
    rows.append(replace(work, total=none(REASON), removes="a loss that teaches nothing"))
    plain = row("beside", "", none("another program: no like-for-like ratio"), 1.5, label="plain PyTorch", fixes=())
    rows.append(replace(plain, what="the same by torch", total=plain.gain))
    missing = ((name, "there is no CUDA device here") for name in ("cuda-graph", "bf16"))
    return Ladder(tuple(rows), tuple(missing), rounds=7)


def with_ladder(found: Ladder | None = None) -> Comparison:
    """As-found against fixed with a ladder; as-found's curves are there too."""
    plain = samples.comparison(title="SYNTHETIC: fixed against as-found")
    first = plain.sides[0]
    runs = tuple(replace(run, series=(*run.series, *stuck())) for run in first.runs)
    return replace(
        plain,
        sides=(replace(first, runs=runs), *plain.sides[1:]),
        extensions={"ladder": found or ladder()},
    )


def _each_side(comparison: Comparison, change: Callable[[Side], Side]) -> Comparison:
    return replace(comparison, sides=tuple(map(change, comparison.sides)))


def saying(**facts: Any) -> Comparison:
    """`with_ladder`, whose programs say this of themselves too."""

    def stated(run: Analysis) -> Analysis:
        return replace(run, info=replace(run.info, facts={**run.info.facts, **facts}))

    return _each_side(with_ladder(), lambda side: replace(side, runs=tuple(map(stated, side.runs))))


def in_points() -> Comparison:
    """`with_ladder` of a trainer whose steps count points."""

    def counted(item: Any) -> Any:
        points = replace(item.measures["tokens_per_s"], unit="points/s")
        return replace(item, measures={**item.measures, "tokens_per_s": points})

    found = _each_side(
        saying(trainer="reference_trainer.ssm", unit="points"),
        lambda side: replace(counted(side), runs=tuple(map(counted, side.runs))),
    )
    climbed = comparison_ladder(found)
    rows = tuple(counted(row) for row in climbed.rows)
    return replace(found, floor=None, verdict="", extensions={"ladder": replace(climbed, rows=rows)})


def empty_ladder() -> Comparison:
    """Stopped before any round was complete."""
    return with_ladder(Ladder((), interrupted=True))


def one_round() -> Comparison:
    """No gain has an interval."""
    single = Ratio("tokens_per_s", 3.0, None, None, 1, different=False, reason=note("only one pair"))
    rows = (item if item.kind in ("baseline", "work") else replace(item, gain=single) for item in ladder().rows)
    return with_ladder(Ladder(tuple(rows), rounds=1, interrupted=True))


def without_effect() -> Comparison:
    """No fix can be told from no effect; one is slower."""
    rows = (
        replace(item, gain=gain(0.5 if item.fix == "async" else 1.001)) if item.kind == "without" else item
        for item in ladder().rows
    )
    return with_ladder(replace(ladder(), rows=tuple(rows)))


def unmeasured() -> Comparison:
    """Rows that were not measured, each with the reason."""
    missing = none("the program failed")
    rows = tuple(
        replace(item, gain=missing, total=missing)
        if (item.kind, item.fix) in {("cumulative", "async"), ("without", "prefetch")}
        else item
        for item in ladder().rows
    )
    return with_ladder(replace(ladder(), rows=rows))


def partial() -> Comparison:
    """Rows of two kinds only."""
    rows = tuple(item for item in ladder().rows if item.kind in {"baseline", "alone"})
    return with_ladder(replace(ladder(), rows=rows))


EVERYTHING: dict[str, Callable[[], Comparison]] = {
    "complete": with_ladder,
    "one-round": one_round,
    "empty": empty_ladder,
    "without-effect": without_effect,
    "unmeasured": unmeasured,
    "partial": partial,
    "points": in_points,
    "gpu": lambda: saying(device="cuda", device_label="SYNTHETIC GPU"),
}
"""For the approval tests, which hold the text and the JSON of each."""
