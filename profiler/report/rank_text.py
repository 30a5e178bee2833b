"""Sentences about the ranks of a program: which one makes the others wait, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from profiler.analyse.model.measures import UNATTRIBUTED
from profiler.analyse.model.ranks import CollectiveWait, RankLedger, Straggler
from profiler.core.units import seconds, share
from profiler.diagnose.model import NAMED
from profiler.report.category_text import CATEGORIES
from profiler.report.notices import describe
from profiler.report.text import at, capitalized, function_name, listed
from profiler.run.model import Site
from profiler.run.tables import COLLECTIVE_METHODS

SPENT: Final[Mapping[str, str]] = {
    **{name: text.spent for name, text in CATEGORIES.items()},
    "device compute": "computing on its device",
    "device copy": "in copies of its device",
}
"""Category -> how a rank spends its time: `32 ms of each of its steps it spends ...`."""
_WAIT: Final = COLLECTIVE_METHODS["_C._distributed_c10d.Work.wait"]
_NONE: Final = 0.01
"""Part of the straggler's time below which the other ranks have none of it."""


def other_ranks(count: int) -> str:
    """Tell what the ranks besides one of so many are called."""
    return "the other rank" if count == 2 else "the other ranks"


def straggler_sentence(ledger: RankLedger) -> str:
    """`Rank 0 makes the other rank wait 36.3 ms of each step: it spends 36 ms waiting for data at x.py:17, in ....`"""
    straggler = ledger.straggler
    if straggler is None:
        return ""
    others = other_ranks(len(ledger.ranks))
    spends = f"it spends {seconds(straggler.seconds)} {SPENT[straggler.category]}{_location(straggler)}"
    has_waits = straggler.core > NAMED * straggler.lead
    core = f"; it waits {seconds(straggler.core)} longer for a core" if has_waits else ""
    waits = f"Rank {straggler.rank}{_of_some(ledger)} makes {others} wait {seconds(straggler.lead)} of each step"
    if straggler.category == UNATTRIBUTED and not straggler.seconds:
        return f"{waits}; its stacks were not sampled, so the reason is unknown{core}."
    if straggler.seconds <= straggler.others:
        return f"{waits}; no part of its steps takes longer than on {others}, so the reason is unknown{core}."
    return f"{waits}: {spends}, {_others(ledger, straggler)}{core}."


def collective_sentences(ledger: RankLedger) -> list[str]:
    """`Rank 1 arrives last in 99% of the calls of all_gather() at x.py:86; the other rank waits 21.2 ms of each step
    for it, while it is at x.py:87.` for each collective whose late rank is not the straggler."""
    others = "rank waits" if len(ledger.ranks) == 2 else "ranks wait"
    straggler = ledger.straggler.rank if ledger.straggler else None
    return [
        f"Rank {wait.rank}{_of_some(ledger)} arrives last in {share(wait.last)} of the calls of "
        f"{collective_name(wait)}{at(wait.site)}; "
        f"the other {others} {seconds(wait.seconds)} of each step for it"
        f"{f', while it is {before}' if (before := before_text(wait)) else ''}."
        for wait in ledger.collectives
        if wait.rank != straggler
    ]


def rank_sentences(ledger: RankLedger, gain: str = "", of_rank: Sequence[str] = ()) -> list[str]:
    """Return all sentences on the ranks in order, with those on the gain and on the late rank itself."""
    straggler, balance = straggler_sentence(ledger), balance_sentence(ledger)
    collectives = collective_sentences(ledger)
    return [*filter(None, [straggler, gain, balance, *of_rank, *collectives] if straggler else [*collectives, balance])]


def collective_name(wait: CollectiveWait) -> str:
    """`all_reduce()`, `wait() for a collective`"""
    if wait.name == _WAIT:
        return "wait() of a collective"
    return wait.name if " " in wait.name else f"{wait.name}()"


def before_text(wait: CollectiveWait) -> str:
    """`at x.py:87, in step()`: what a late rank does before it arrives; empty where that is not known."""
    if wait.before is None:
        return ""
    function = function_of_program(wait.before)
    return at_function(wait.before).strip() if wait.at_line or not function else f"in {function}"


def at_function(site: Site) -> str:
    """` at x.py:87, in step()`; without a function at the level of a module."""
    function = function_of_program(site)
    return at(site) + (f", in {function}" if function else "")


def function_of_program(site: Site) -> str:
    """`train()`; empty at the level of a module."""
    return function_name(site) if site.function not in ("", "<module>") else ""


def balance_sentence(ledger: RankLedger) -> str:
    """Tell what the sentences before it say about the ranks that they do not name; empty with a straggler."""
    if ledger.straggler is not None:
        alike = [str(number) for number in ledger.straggler.alike]
        ranks = f"Rank {alike[0]} is" if len(alike) == 1 else f"Ranks {listed(alike)} are"
        late = f"{ranks} nearly as late." if alike else ""
        return " ".join(filter(None, (late, _left_out(ledger))))
    return " ".join(filter(None, (_left_out(ledger), _about(ledger))))


def _of_some(ledger: RankLedger) -> str:
    """`, of the 2 recorded ones,` where the ranks that were compared are not all of the job."""
    if len(ledger.ranks) == max(ledger.size, len(ledger.ranks) + len(ledger.few_steps)):
        return ""
    return f", of the {len(ledger.ranks)} {'compared' if ledger.few_steps else 'recorded'} ones,"


def _about(ledger: RankLedger) -> str:
    """Return the ranks that the verdict holds for, where none of them makes the others wait."""
    count, rank = len(ledger.ranks), ledger.analysed
    recorded = count + len(ledger.few_steps)
    size = max(recorded, ledger.size)
    if count == 1:
        return f"All of this is about rank {rank} of {size}."
    only = "" if size == recorded else f"Only {recorded} of {size} ranks were recorded. "
    if ledger.reason is not None or ledger.collectives:
        what, reason = "All else" if ledger.collectives else "All of this", describe(ledger.reason)
        return f"{only}{what} is about rank {rank} of {size}{f'; {reason}' if reason else ''}."
    if size > recorded:
        alike = "it holds for each of them" if ledger.uniform else f"this is about rank {rank}"
        others = "the other" if count == 2 else "the others"
        these = f"the other {count}" if ledger.few_steps else "these"
        none = f"none of {these} clearly makes {others} wait"
        return f"Only {recorded} of {size} ranks were recorded, and {none}; {alike}."
    if ledger.uniform:
        held = "both" if count == 2 else f"all {count}"
        return f"This holds for {f'the other {count}' if ledger.few_steps else held} ranks."
    none = none_waits(count)
    return f"{capitalized(none)}; these figures are of rank {rank} of {size}."


def none_waits(count: int) -> str:
    """Say that none of `count` ranks is late on average: each may be in some steps, or by little."""
    return "neither rank clearly makes the other wait" if count == 2 else "no rank clearly makes the others wait"


def _left_out(ledger: RankLedger) -> str:
    """`Rank 1 ended fewer than half as many steps as the rank with most steps, and is left out.`"""
    if not ledger.few_steps:
        return ""
    numbers = listed([str(number) for number in ledger.few_steps])
    ranks = f"Rank {numbers}" if len(ledger.few_steps) == 1 else f"Ranks {numbers}"
    others = f"rank {ledger.analysed}" if len(ledger.ranks) == 1 else "the rank with most steps"
    left = "is left out" if len(ledger.few_steps) == 1 else "are left out"
    return f"{ranks} ended fewer than half as many steps as {others}, and {left}."


def comparison_sentences(sides: Sequence[tuple[str, RankLedger | None, int]]) -> list[str]:
    """Tell how the ranks of the compared programs differ: their number, and which of them makes the others wait.

    :param sides: label and ranks, None where one process was recorded, and the number of ranks of the job.
    """
    sentences = []
    if len({size for _, _, size in sides}) > 1:
        numbers = listed([f"{size} in {label}" for label, _, size in sides])
        sentences.append(f"The numbers of ranks differ ({numbers}), so a step need not be the same work.")
    known = [(label, ledger) for label, ledger, _ in sides if ledger and ledger.reason is None]
    if any(ledger.straggler for _, ledger in known):
        sentences += [_comparison_sentence(label, ledger) for label, ledger in known]
    return sentences


def _comparison_sentence(label: str, ledger: RankLedger) -> str:
    straggler = ledger.straggler
    others = other_ranks(len(ledger.ranks))
    if straggler is None and ledger.collectives:
        wait = ledger.collectives[0]
        late = f"rank {wait.rank} arrives last at {collective_name(wait)}{at(wait.site)}, where {others} wait"
        amount = f"{'s' * (len(ledger.ranks) == 2)} {seconds(wait.seconds)} of each step for it"
        return f"In {label} {late}{amount}; its figures are about rank {ledger.analysed}."
    if straggler is None:
        return f"In {label} {none_waits(len(ledger.ranks))}; its figures are about rank {ledger.analysed}."
    waits = f"rank {straggler.rank} makes {others} wait {seconds(straggler.lead)} of each step"
    return f"In {label} {waits}; its figures are about that rank."


def _location(straggler: Straggler) -> str:
    site = straggler.site
    if site is None:
        return ""
    if not straggler.at_line and (function := function_of_program(site)):
        return f" in {function}{at(site)} and other lines of it"
    return at_function(site)


def _others(ledger: RankLedger, straggler: Straggler) -> str:
    rest = [each for each in ledger.ranks if each.rank != straggler.rank]
    if straggler.others < _NONE * straggler.seconds:
        return f"and rank {rest[0].rank} none" if len(rest) == 1 else "and the other ranks none"
    amount, there = seconds(straggler.others), ", none of it at this place" if straggler.alone else ""
    return (
        f"and rank {rest[0].rank} {amount}{there}"
        if len(rest) == 1
        else f"and the other ranks {amount} (median){there}"
    )
