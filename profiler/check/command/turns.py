"""`check` of two programs by turns: rounds until they decide, their counters, and where the time goes after a FAIL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler.check.command.baseline import Held, joined
from profiler.check.command.found import Found, count_steps, explained_all, found_in, only_batches
from profiler.check.command.kept import rounds_kept
from profiler.check.command.programs import gpus
from profiler.check.command.results import Trouble, finish
from profiler.check.command.rounds import Made, make_rounds
from profiler.check.command.settings import GateSettings
from profiler.check.command.sides import fingerprint, side_info
from profiler.check.counters import compare, overall
from profiler.check.decide import throughput
from profiler.check.keyed import differing, key_of
from profiler.check.loading import WOULD_SYNC
from profiler.check.model import BASE, CANDIDATE, FAIL, INCONCLUSIVE, CounterLine, GateResult, Limits, Throughput
from profiler.check.outputs.revision_text import revision_sentence
from profiler.check.speed.controlled_process import Program
from profiler.check.speed.interleave import RoundRunner

if TYPE_CHECKING:
    from profiler.check.worktree.prepare import Side

_FILES: Final = (
    "the base's files lie on another file system than the candidate's, and what reads files may differ by that"
)


def by_turns(
    sides: Mapping[str, Side],
    programs: Mapping[str, Program],
    settings: GateSettings,
    *,
    mode: str,
    held: Held | None = None,
    **options: Any,
) -> int:
    """Speed and counters of BASE and CANDIDATE; the exit code.

    :param held: what a file of counters said of the candidate.
    :param options: of RoundRunner.
    """
    made = Made()
    with rounds_kept(made.rounds, settings.out):
        with gpus() as clocks:
            maker = RoundRunner(
                programs, settings.out, warmup=settings.warmup, patience=settings.patience, gpus=clocks, **options
            )
            make_rounds(maker, settings.limits, made, lambda: _names_known(maker.runs, settings.limits))
        speed = throughput(
            made.rounds, settings.limits, interrupted=bool(made.interrupted), why_stopped=made.why_stopped
        )
        founds = {side: found_in(maker.runs[side], str(of.cwd)) for side, of in sides.items()}
        lines = _counters(programs, founds, settings, held, stopped=bool(made.interrupted))
    state = overall(lines) if lines else None
    if speed.state == FAIL and settings.explain:
        details = explained_all(programs, settings)
        founds = {side: replace(found, detail=details.get(side)) for side, found in founds.items()}
    speed = _trusted(speed, sides[BASE])
    info = {
        name: side_info(name, of.what, of.argv, of.commit, found=founds[name], rounds=made.rounds)
        for name, of in sides.items()
    }
    result = GateResult(
        base=info[BASE],
        candidate=info[CANDIDATE],
        limits=settings.limits,
        mode=mode,
        counters=lines,
        counters_state=state,
        throughput=speed,
        doubts=(*only_batches(founds[CANDIDATE]), *unlike(founds[BASE], founds[CANDIDATE]), *speed.doubts),
        notes=tuple(dict.fromkeys(revision_sentence(note) for side in sides.values() for note in side.notes)),
        machine=fingerprint(founds[BASE].runs),
    )
    code = finish(joined(result, held) if held else result, settings, sides=founds)
    return made.interrupted or code


def _names_known(runs: Mapping[str, Sequence[Path]], limits: Limits) -> None:
    """Whether limits name what the programs count, after one round of many.

    :raises ProfilerError: they name what nothing counts.
    """
    counted = [one for side in (BASE, CANDIDATE) for one in found_in(runs[side]).counted]
    compare(counted, counted, limits)


def _counters(
    programs: Mapping[str, Program],
    founds: Mapping[str, Found],
    settings: GateSettings,
    held: Held | None,
    *,
    stopped: bool,
) -> tuple[CounterLine, ...]:
    """Of the light runs of all rounds; where one rose, once more with the lines that did."""
    if not founds[BASE].counted or not founds[CANDIDATE].counted:
        return ()
    lines = compare(founds[BASE].counted, founds[CANDIDATE].counted, settings.limits)
    if overall(lines) != FAIL or stopped:
        return lines
    with Trouble("the lines at which counters rose could not be found"):
        located = {
            side: held.found.counted
            if held and side == CANDIDATE
            else count_steps(program, settings, 1, of=f"once more, the {side}").counted
            for side, program in programs.items()
        }
        again = {
            (line.counter, line.scope): line for line in compare(located[BASE], located[CANDIDATE], settings.limits)
        }
        return tuple(_with_lines(line, again.get((line.counter, line.scope))) for line in lines)
    return lines


def _with_lines(line: CounterLine, again: CounterLine | None) -> CounterLine:
    """With the lines at which it rose. Rounds take what loaders do for the step's; runs with lines do not."""
    if again is None:
        return line
    if line.counter == WOULD_SYNC and line.state != again.state:
        return replace(again, reason=again.reason or "what rose lies in loaders, and gates nothing")
    return replace(line, changes=again.changes)


def unlike(base: Found, candidate: Found) -> tuple[str, ...]:
    """In what the sides do other work, or do it elsewhere; their names may differ."""
    if not base.runs or not candidate.runs:
        return ()
    before, after = (
        {name: part for name, part in key_of(side.runs[0]).items() if name != "program"} for side in (base, candidate)
    )
    return tuple(f"The sides differ in {line}." for line in differing(before, after))


def _trusted(speed: Throughput, base: Side) -> Throughput:
    """A FAIL is none where the base's files lie elsewhere: what reads them may be faster or slower there."""
    if not base.other_filesystem:
        return speed
    speed = replace(speed, doubts=(*speed.doubts, f"{_FILES[0].upper()}{_FILES[1:]}."))
    if speed.state != FAIL:
        return speed
    return replace(
        speed,
        state=INCONCLUSIVE,
        reason=f"{_FILES}; otherwise it would be a FAIL, {speed.reason}",
        lines=tuple(replace(line, state=INCONCLUSIVE) if line.state == FAIL else line for line in speed.lines),
    )
