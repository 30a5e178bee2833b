"""The error rates as Markdown: live gates, gates put together from their rounds, and other tools' rules beside them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
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
WRONG = {
    "same": ("FAIL", (FAIL,)),
    "slower-2": ("FAIL", (FAIL,)),
    "slower-5": ("no FAIL", (PASS, INCONCLUSIVE)),
    "stall": ("no FAIL", (PASS, INCONCLUSIVE)),
    "loader-10": ("no FAIL", (PASS, INCONCLUSIVE)),
}
"""What would be an error; an INCONCLUSIVE is one where there is something to be caught."""
CROWDED = ", crowded"
"""Ends the names of experiments on a machine that had no core to spare for them."""
WIDTH = 120
FEEDS = {"few": "10 samples of a side", "many": "as many as the gate takes"}
WAYS = ("same job", "stored")

CANNOT = """\
Drawn rounds say what this gate does with rounds such as these. They cannot show a machine that is worse than it was in
these hours, nor a tail that no live round reached. Drawn one by one, rounds are independent and their hours mixed,
which real ones are not; "kept together" leaves runs of 5 consecutive rounds as they were, so that what they have in
common (a busy quarter of an hour) stays in common. The interval is of 95%: percentiles over pools in which whole live
gates were drawn with replacement, and never narrower than what the number of drawn gates allows. A rate of 0 means that
no such rounds were seen often enough, not that there are none: the live counts above are the bound without that
assumption. Live gates stop as soon as they may, so that unlucky ones lend more rounds; with the first 5 rounds of each
A/A gate alone, {first}.{alike}"""


_ROUNDS = """\
Each dot is a live round (300 at most of an experiment), the bar the middle half, the stroke the median. The edges are
not for single rounds: it is a FAIL where the mean of several is surely above the one, a PASS where it is surely below
the other."""
_LEGEND = """\
Dots with intervals of 95%. Of this gate: rounds drawn one by one; filled: FAIL; open: FAIL or INCONCLUSIVE, which is
red too unless `--inconclusive=pass` says otherwise."""


def document(found: Mapping[str, Any], figure: str, rounds_figure: str) -> str:
    """The part 'Error rates'.

    :param figure: path of the figure, from the document.
    """
    parts = [
        "## Error rates",
        _opening(found),
        "### Live gates",
        live_table(found["live"]),
        _live_notes(found["live"]),
        f"![Slow-down of each live round, by experiment, with the edges that decide]({rounds_figure})\n\n{_ROUNDS}",
        "### Gates drawn from live rounds",
        drawn_table(found["drawn"], found["gates_drawn"]),
        CANNOT.format(first=_first(found), alike=_alike(found["drawn"])) + _lent(found["drawn"]),
        "### Other rules on the same turns",
        f"![False alarms and misses of each rule]({figure})\n\n{_LEGEND}",
        _how_fed(found),
        *(_rules_table(found, size) for size in FEEDS),
        _sources(),
    ]
    paragraphs = [paragraph for part in parts for paragraph in part.split("\n\n") if paragraph]
    return "\n\n".join(map(_wrapped, paragraphs)) + "\n"


def shown(name: str) -> str:
    """An experiment, for people."""
    plain = name.removesuffix(CROWDED)
    return SHOWN.get(plain, plain) + (CROWDED if plain != name else "")


def wrong(name: str) -> tuple[str, tuple[str, ...]]:
    """What would be an error, in words, and the verdicts that are one."""
    return WRONG.get(name.removesuffix(CROWDED), ("no FAIL", (PASS, INCONCLUSIVE)))


def _wrapped(paragraph: str) -> str:
    """Text as long as the lines of other documents; tables, headings, lists and figures as they are."""
    if paragraph.startswith(("|", "#", "-", "!")):
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def _opening(found: Mapping[str, Any]) -> str:
    live = found["live"]
    gates, rounds = sum(one["gates"] for one in live.values()), sum(one["rounds"] for one in live.values())
    return (
        f"From {gates} live gates with {rounds} rounds, {found['from']} to {found['to']} (UTC), `--detect 5%`. "
        f"Real work was added, nothing simulated. Made by `python -m tests.benchmarks.gate_resample`."
    )


def live_table(live: Mapping[str, Any]) -> str:
    """Counts, times, and the error rate's upper bound."""
    head = ("candidate", "gates", FAIL, INCONCLUSIVE, PASS, "median s", "most s", "rounds", "error", "at most")
    rows = []
    for name, one in live.items():
        rows.append(
            (
                shown(name),
                one["gates"],
                one[FAIL],
                one[INCONCLUSIVE],
                one[PASS],
                f"{one['seconds_median']:.0f}",
                f"{one['seconds_most']:.0f}",
                f"{one['rounds_median']:g}, at most {one['rounds_most']}",
                f"{one['error']}: {one['wrong']} of {one['gates']}",
                f"{100 * one['at_most']:.1f}%",
            )
        )
    return _table(head, rows)


def _live_notes(live: Mapping[str, Any]) -> str:
    text = (
        "No FAIL: PASS or INCONCLUSIVE. "
        "*At most*: the rate of that error which these counts alone exclude with 95% (Clopper–Pearson, one-sided). "
        "Verdicts are those of the moment."
    )
    if any(name.endswith(CROWDED) for name in live):
        text += (
            " *Crowded*: with the gate's own there were on average more programs that wanted to run than cores, less "
            "what other virtual machines took of these; each round records both. Only the gates that were not crowded "
            "are in what follows."
        )
    changed = {name: one["changed"] for name, one in live.items() if one["changed"]}
    if not changed:
        return text + " Today's rules give the same on the same rounds."
    listed = "; ".join(
        f"{shown(name)}: " + ", ".join(f"{what} ({number})" for what, number in all_of.items())
        for name, all_of in changed.items()
    )
    return f"{text} Today's rules differ on the same rounds in: {listed}."


def drawn_table(drawn: Mapping[str, Any], gates: int) -> str:
    """Rates of each verdict, two ways of drawing."""
    head = ("candidate", "live rounds", f"{gates} gates, rounds", FAIL, INCONCLUSIVE, PASS)
    rows = []
    for name, one in drawn.items():
        for way in ("singly", "together"):
            lead = (SHOWN.get(name, name), one["rounds"]) if way == "singly" else ("", "")
            shown = "one by one" if way == "singly" else "kept together"
            rows.append((*lead, shown, *(_rate(one[way][state]) for state in (FAIL, INCONCLUSIVE, PASS))))
    return _table(head, rows)


def _rate(one: Mapping[str, float]) -> str:
    if (one["low"], one["high"]) == (0, 1):
        return f"{_percent(one['rate'])}% (too few gates)"
    return f"{_percent(one['rate'])}% ({_percent(one['low'])}–{_percent(one['high'])})"


def _percent(share: float) -> str:
    """Two digits near the ends, none between."""
    return f"{100 * share:.2f}" if share < 0.0995 or share > 0.9 else f"{100 * share:.0f}"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


def _first(found: Mapping[str, Any]) -> str:
    first = found["first_rounds"]
    if first is None:
        return "there is nothing to compare yet"
    return f"{_percent(first[FAIL])}% are FAIL and {_percent(first[INCONCLUSIVE])}% INCONCLUSIVE"


def _alike(drawn: Mapping[str, Any]) -> str:
    known = {name: one["alike"] for name, one in drawn.items() if one["alike"] is not None}
    if not known:
        return ""
    shown = ", ".join(f"{SHOWN.get(name, name)} {_signed(value)}" for name, value in known.items())
    return (
        " How alike the first 5 rounds of a gate are (intraclass correlation of the typical step's slow-down, 0 where "
        f"they are no more alike than rounds of different gates): {shown}."
    )


def _lent(drawn: Mapping[str, Any]) -> str:
    lent = [(SHOWN.get(name, name), one) for name, one in drawn.items() if one["lent"]]
    if not lent:
        return ""
    shown = "; ".join(f"{name}: {one['confirming'] - one['lent']} of its own" for name, one in lent)
    return (
        f"\n\nRounds that confirm are too few where little was suspected ({shown}): there the {lent[0][1]['lent']} of "
        "“5% more work” stand in, their slow-down moved by the difference of both experiments' means, line by line, "
        "their control as it is."
    )


def _how_fed(found: Mapping[str, Any]) -> str:
    return f"""\
Each rule gets the turns of the same live rounds, a sample being the time of a step in one turn, as its users would run
it: one revision after the other. 10 samples are what asv takes and benchstat asks for (pytest-benchmark's second
would hold 20 such steps). *Same job*: the base's first 10 turns of a round against the candidate's last 10, and
the other way round. *Stored*: the base's turns of one gate against the candidate's of another one ({found["apart"]}).
*As many as the gate takes*: the base's turns of a gate's first two rounds against the candidate's of its fourth and
fifth (and the other way round), or all of five rounds against all of five of another gate. Intervals (in the figure
and in `error-rates.json`) are of 95%, whole gates drawn with replacement. This gate's column is FAIL, from rounds drawn
one by one: an INCONCLUSIVE is neither."""


def _rules_table(found: Mapping[str, Any], size: str) -> str:
    peers, drawn = found["peers"], found["drawn"]
    names = [name for name in SHOWN if name in peers and name in drawn]
    if not names:
        return ""
    rows = []
    for rule in RULES:
        cells = [
            " / ".join(_whole(peers[name].get(f"{size}, {way}", {}).get(rule.key)) for way in WAYS) for name in names
        ]
        rows.append((rule.name, *cells))
    ours = [f"**{_percent(drawn[name]['singly'][FAIL]['rate'])}** / –" for name in names]
    rows.append(("**this gate**, drawn one by one", *ours))
    counts = peers[names[0]]
    rows_fed = " / ".join(f"{next(iter(one.values()))['rows']}" for key, one in counts.items() if key.startswith(size))
    head = f"called slower in % of cases, {FEEDS[size]}: same job / stored"
    return (
        _table((head, *(SHOWN[name] for name in names)), rows)
        + f"\n\nComparisons in the first column: {rows_fed or '–'}."
    )


def _whole(one: Mapping[str, float] | None) -> str:
    return "–" if one is None else f"{100 * one['rate']:.0f}"


def _sources() -> str:
    lines = [f"- {rule.name}: {rule.source}. {rule.note}" for rule in RULES]
    return "Where the rules are from:\n\n" + "\n".join(lines)


def _table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
