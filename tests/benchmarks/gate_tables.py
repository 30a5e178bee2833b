"""The error rates as Markdown: live gates, gates that are drawn from their rounds, and other tools' rules."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from profiler.check.model import FAIL, INCONCLUSIVE, PASS
from tests.benchmarks.gate_rules import RULES

SHOWN = {
    "same": "A/A: the same program twice",
    "slower-2": "2% more work",
    "slower-5": "5% more work",
    "stall": "every 10th step 50% longer",
    "loader-10": "10% more work in a loader's worker",
}
CROWDED = ", crowded"
"""Ends the name of an experiment on a machine that had no free core for it."""
WIDTH = 120
SIZES = {"few": "10 samples of a side", "many": "all blocks of two or five rounds"}
WAYS = ("same job", "stored")

_OPENING = """\
From {gates} live gates with {rounds} rounds, {from} to {to} (UTC), `detect = "5%"`. Real work was added; nothing was
simulated. Written by `python -m tests.benchmarks.gate_resample`."""
_CROWDED_NOTE = """ *Crowded*: on average, more programs wanted to run than there were cores. The gate's own
programs count, and the time that other virtual machines took counts as missing cores; each round records both. The
sections below leave crowded gates out."""
_ROUNDS = """\
Each dot is a live round (at most 300 of an experiment), the bar is the middle half, and the stroke is the median. The
edges do not apply to single rounds. The result is a FAIL if the mean of several rounds is surely above one edge, and a
PASS if it is surely below the other."""
_LIMITATIONS = """\
These gates are made of rounds that were drawn from live gates. They show what this gate does with such rounds. They
cannot show a worse machine than that of these hours, nor a tail that no live round reached. Rounds drawn *one by one*
are independent and come from mixed hours, unlike real ones. *Kept together* draws runs of 5 consecutive rounds, and so
keeps what these have in common, such as a busy quarter of an hour.

The 95% interval consists of percentiles over pools. For each pool, whole live gates were drawn with replacement. It is
never narrower than the number of drawn gates allows. A rate of 0 does not mean that it never happens: too few such
rounds were observed. The bounds of the live counts above do not depend on drawing.

A live gate stops as soon as it can, so unlucky gates contribute more rounds. With only the first 5 rounds of each A/A
gate, {first}.{alike}"""
_LEGEND = """\
The dots have intervals of 95%. The rates of this gate come from rounds that were drawn one by one. Filled: FAIL. Open:
FAIL or INCONCLUSIVE; INCONCLUSIVE fails a job too, unless `inconclusive = "pass"` is set."""
_MEASURED = """\
Each rule gets the blocks of the same live rounds. A sample is the time of a step in one block. Users of these rules
measure one revision after the other, so the rules get the blocks in this order. asv takes 10 samples, and benchstat
recommends 10 (a second of pytest-benchmark would contain 20 such steps).

- *Same job*: the base's first 10 blocks of a round against the candidate's last 10, and the other way round.
- *Stored*: the base's blocks of one gate against the candidate's of another gate ({apart}).
- *All blocks of two or five rounds*: the base's blocks of a gate's first two rounds against the candidate's of its
  fourth and fifth rounds, and the other way round; or all of five rounds against all of five rounds of another gate.

For the 95% intervals (in the figure and in `error-rates.json`), whole gates were drawn with replacement. The row of
this gate is its rate of FAIL from rounds that were drawn one by one; INCONCLUSIVE does not count."""


def document(found: Mapping[str, Any], figure: str, rounds_figure: str) -> str:
    """The section 'Error rates'.

    :param figure: path of the figure of the rules, from the document; likewise `rounds_figure`.
    """
    live, rates = found["live"], found["drawn"]
    gates, rounds = (sum(one[name] for one in live.values()) for name in ("gates", "rounds"))
    parts = [
        "## Error rates",
        _OPENING.format(gates=gates, rounds=rounds, **found),
        "### Live gates",
        _live_table(live),
        _live_notes(live),
        f"![Slow-down of each live round, by experiment, with the edges that decide]({rounds_figure})",
        _ROUNDS,
        "### Gates drawn from live rounds",
        _drawn_table(rates, found["gates_drawn"]),
        _LIMITATIONS.format(first=_first_rounds(found["first_rounds"]), alike=_correlations(rates)),
        _lent_rounds(rates),
        "### Other rules on the same blocks",
        f"![False alarms and misses of each rule]({figure})",
        _LEGEND,
        _MEASURED.format(apart=found["apart"]),
        *(paragraph for size in SIZES for paragraph in _rules_table(found, size)),
        "The rules come from:",
        "\n".join(f"- {rule.name}: {rule.source}. {rule.note}" for rule in RULES),
    ]
    return "\n\n".join(_wrapped(part) for text in parts for part in text.split("\n\n") if part) + "\n"


def shown(name: str) -> str:
    """An experiment as people read it."""
    plain = name.removesuffix(CROWDED)
    return SHOWN.get(plain, plain) + (CROWDED if plain != name else "")


def wrong(name: str) -> tuple[str, tuple[str, ...]]:
    """What would be an error, in words, and the verdicts that are one: INCONCLUSIVE is one where there is a slow-down
    to catch."""
    if name.removesuffix(CROWDED) in {"same", "slower-2"}:
        return FAIL, (FAIL,)
    return "no FAIL", (PASS, INCONCLUSIVE)


def _wrapped(paragraph: str) -> str:
    """Fill text to the width of other documents; leave tables, headings, lists and figures alone."""
    if paragraph.startswith(("|", "#", "-", "!")):
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def _live_table(live: Mapping[str, Any]) -> str:
    """Counts, times, and the error rate's upper bound."""
    head = ("candidate", "gates", FAIL, INCONCLUSIVE, PASS, "median s", "most s", "rounds", "error", "at most")
    return _table(
        head,
        (
            (
                shown(name),
                one["gates"],
                *(one[state] for state in (FAIL, INCONCLUSIVE, PASS)),
                f"{one['seconds_median']:.0f}",
                f"{one['seconds_most']:.0f}",
                f"{one['rounds_median']:g}, at most {one['rounds_most']}",
                f"{one['error']}: {one['wrong']} of {one['gates']}",
                f"{100 * one['at_most']:.1f}%",
            )
            for name, one in live.items()
        ),
    )


def _live_notes(live: Mapping[str, Any]) -> str:
    text = (
        '"No FAIL" is a PASS or INCONCLUSIVE. *At most* is the upper bound of the error rate with 95% confidence '
        "(Clopper–Pearson, one-sided), from these counts alone. The verdicts were given at the time of the check."
    )
    if any(name.endswith(CROWDED) for name in live):
        text += _CROWDED_NOTE
    changed = "; ".join(
        f"{shown(name)}: " + ", ".join(f"{change} ({number})" for change, number in one["changed"].items())
        for name, one in live.items()
        if one["changed"]
    )
    if changed:
        return f"{text} The present rules change these verdicts on the same rounds: {changed}."
    return f"{text} The present rules give the same verdicts for the same rounds."


def _drawn_table(drawn: Mapping[str, Any], gates: int) -> str:
    """Rates of each verdict, by both ways of drawing."""
    states = (FAIL, INCONCLUSIVE, PASS)
    rows = []
    for name, one in drawn.items():
        rows += [
            (shown(name), one["rounds"], "one by one", *(_rate(one["singly"][state]) for state in states)),
            ("", "", "kept together", *(_rate(one["together"][state]) for state in states)),
        ]
    return _table(("candidate", "live rounds", f"{gates} gates, rounds", *states), rows)


def _rate(one: Mapping[str, float]) -> str:
    ends = f"{_percent(one['low'])}–{_percent(one['high'])}"
    return f"{_percent(one['rate'])}% ({'too few gates' if (one['low'], one['high']) == (0, 1) else ends})"


def _percent(share: float) -> str:
    """Percent with two decimals near the ends, and none between."""
    return f"{100 * share:.2f}" if share < 0.0995 or share > 0.9 else f"{100 * share:.0f}"


def _first_rounds(first: Mapping[str, float] | None) -> str:
    if first is None:
        return "there is nothing to compare yet"
    return f"{_percent(first[FAIL])}% are FAIL and {_percent(first[INCONCLUSIVE])}% INCONCLUSIVE"


def _correlations(drawn: Mapping[str, Any]) -> str:
    known = ", ".join(
        f"{shown(name)} " + f"{one['alike']:+.2f}".replace("-", "\N{MINUS SIGN}")
        for name, one in drawn.items()
        if one["alike"] is not None
    )
    if not known:
        return ""
    return (
        " The slow-downs of the typical step in the first 5 rounds of a gate have an intraclass correlation. It is 0 "
        f"if they are no more alike than rounds of different gates: {known}."
    )


def _lent_rounds(drawn: Mapping[str, Any]) -> str:
    lent = {shown(name): one for name, one in drawn.items() if one["lent"]}
    if not lent:
        return ""
    own = "; ".join(f"{name}: {one['confirming'] - one['lent']}" for name, one in lent.items())
    return (
        f"In some experiments a FAIL was seldom suspected, so they have too few confirming rounds ({own}). They also "
        f"use the {next(iter(lent.values()))['lent']} of “5% more work”. Their slow-downs are shifted by the "
        "difference between the means of both experiments, line by line."
    )


def _rules_table(found: Mapping[str, Any], size: str) -> Iterable[str]:
    """Each rule's rates, and the number of comparisons."""
    peers, drawn = found["peers"], found["drawn"]
    names = [name for name in SHOWN if name in peers and name in drawn]
    if not names:
        return
    rates = {name: [peers[name].get(f"{size}, {way}", {}) for way in WAYS] for name in names}
    rows = [
        (rule.name, *(" / ".join(_whole_percent(way.get(rule.key)) for way in rates[name]) for name in names))
        for rule in RULES
    ]
    ours = (f"**{_percent(drawn[name]['singly'][FAIL]['rate'])}** / –" for name in names)
    head = f"called slower in % of cases, {SIZES[size]}: same job / stored"
    yield _table((head, *map(shown, names)), [*rows, ("**this gate**, drawn one by one", *ours)])
    compared = " / ".join(str(next(iter(way.values()))["rows"]) for way in rates[names[0]] if way)
    yield f"Comparisons in the first column: {compared or '–'}."


def _whole_percent(one: Mapping[str, float] | None) -> str:
    return "–" if one is None else f"{100 * one['rate']:.0f}"


def _table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
