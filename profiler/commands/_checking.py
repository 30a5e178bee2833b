"""The modes of `check`, from what is asked for to a result: wiring between the rooms."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.base.errors import Exit, ProfilerError
from profiler.commands._gate_found import Found, count_steps, explained, found_in
from profiler.commands._gate_results import fingerprint, finish, side_info
from profiler.commands._gate_rounds import make_rounds
from profiler.commands._gate_settings import GateSettings
from profiler.gate.counters import compare, overall
from profiler.gate.decide import throughput
from profiler.gate.keyed import differing, key_of
from profiler.gate.model import BASE, CANDIDATE, FAIL, CounterLine, GateResult
from profiler.record.turns.resident import Program, Resident
from profiler.record.turns.rounds import Rounds

if TYPE_CHECKING:
    from profiler.record.revisions.prepare import Side

_OURS = "reference_trainer"
"""It marks itself: no hooks go into it."""
_OF_RUNS = (
    "Recorded at different times: how fast they were gates nothing; --against REV or --before and --after do.",
    "One process a side: a counter that varies by itself cannot be told from one that changed.",
)


# ---------------------------------------------------------------- counters against a file


def check_command(command: tuple[str, ...], settings: GateSettings, *, against: str | None) -> int:
    """A command against a baseline's counters, against another revision, or both."""
    if against is not None:
        return _against(command, settings, against)
    from profiler.commands._gate_baseline import against_file, steps_of, updated

    settings = replace(settings, steps=steps_of(settings))
    program = _program(CANDIDATE, _as_is(command))

    def counting(processes: int, first: int) -> Found:
        return count_steps(program, settings, processes, first)

    if settings.update:
        return updated(program, settings, counting)
    result, _ = against_file(program, settings, counting)
    return finish(result, settings)


# ---------------------------------------------------------------- two programs by turns


def check_commands(before: str, after: str, settings: GateSettings) -> int:
    """Two commands, each in its own words."""
    sides = []
    for option, text in (("before", before), ("after", after)):
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise ProfilerError(f"--{option} {text!r}: {error}") from None
        if not words:
            raise ProfilerError(f"--{option}: there is no command in it")
        sides.append(replace(_as_is(words), what="", commit=""))
    return _by_turns(sides[0], sides[1], settings, mode="commands")


def _against(command: tuple[str, ...], settings: GateSettings, rev: str) -> int:
    from profiler.record.revisions.prepare import prepared
    from profiler.record.revisions.stray import strayed

    with prepared(
        rev,
        command,
        cwd=Path.cwd(),
        links=settings.links,
        environment=settings.environment,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    ) as base:
        candidate = _as_is(command)

        def admit(resident: Resident) -> None:
            if resident.program.side == CANDIDATE or base.repository is None:
                return
            if own := strayed(resident.files, base.repository):
                raise ProfilerError(
                    f"the base runs code of the working tree ({own[0]}{f' and {len(own) - 1} more' * (len(own) > 1)}), "
                    f"so both sides would be the same: is the project installed in the environment from this folder? "
                    f"Start it from its sources (python -m ...), or use --environment auto"
                )

        return _by_turns(base, candidate, settings, mode="against", admit=admit)


def _as_is(command: tuple[str, ...]) -> Side:
    from profiler.record.revisions.prepare import working

    return working(command, Path.cwd())


_HINT = "the revision has only what git keeps: --link PATH shows it data from outside git"


def _program(side: str, of: Side, hint: str = "") -> Program:
    from profiler.record.collectors.environment import EnvironmentCollector

    described = {**EnvironmentCollector().describe(), "git_commit": of.commit or None}
    inside = not any(_OURS in word for word in of.argv)
    program = Program(side, of.argv, of.cwd, dict(of.env), inside, described, hint)
    program.executable()  # before anything takes time
    return program


def _by_turns(base: Side, candidate: Side, settings: GateSettings, *, mode: str, **options: Any) -> int:
    programs = {
        BASE: _program(BASE, base, _HINT if mode == "against" else ""),
        CANDIDATE: _program(CANDIDATE, candidate),
    }
    with _gpus() as gpus:
        maker = Rounds(programs, settings.out, warmup=settings.warmup, patience=settings.patience, gpus=gpus, **options)
        made = make_rounds(maker, settings.limits)
    speed = throughput(made.rounds, settings.limits, interrupted=made.interrupted, why_stopped=made.why_stopped)
    founds = {side: found_in(maker.runs[side], str(of.cwd)) for side, of in ((BASE, base), (CANDIDATE, candidate))}
    lines = _counters(programs, founds, settings, made.interrupted)
    if speed.state == FAIL and settings.explain:
        founds = {side: replace(found, detail=explained(programs[side], settings)) for side, found in founds.items()}
    info = {
        name: side_info(name, of.what, of.argv, of.commit, runs=founds[name].runs, rounds=made.rounds)
        for name, of in ((BASE, base), (CANDIDATE, candidate))
    }
    result = GateResult(
        base=info[BASE],
        candidate=info[CANDIDATE],
        limits=settings.limits,
        mode=mode,
        counters=lines,
        counters_state=overall(lines) if lines else None,
        throughput=speed,
        doubts=(*_unlike(founds[BASE], founds[CANDIDATE]), *speed.doubts),
        notes=tuple(dict.fromkeys((*base.notes, *candidate.notes))),
        machine=fingerprint(founds[BASE].runs),
    )
    code = finish(result, settings, sides=founds)
    return int(Exit.INTERRUPTED) if made.interrupted else code


def _counters(
    programs: Mapping[str, Program], founds: Mapping[str, Found], settings: GateSettings, interrupted: bool
) -> tuple[CounterLine, ...]:
    """Of the light runs of all rounds; where one rose, once more with the lines that did."""
    if not founds[BASE].counted or not founds[CANDIDATE].counted:
        return ()
    lines = compare(founds[BASE].counted, founds[CANDIDATE].counted, settings.limits)
    if overall(lines) != FAIL or interrupted:
        return lines
    located = {side: count_steps(program, settings, 1).counted for side, program in programs.items()}
    sites = {
        (line.counter, line.scope): line.changes for line in compare(located[BASE], located[CANDIDATE], settings.limits)
    }
    return tuple(replace(line, changes=sites.get((line.counter, line.scope), ())) for line in lines)


def _unlike(base: Found, candidate: Found) -> tuple[str, ...]:
    """In what the sides do other work, or do it elsewhere; their names may differ."""
    if not base.runs or not candidate.runs:
        return ()
    before, after = (
        {name: part for name, part in key_of(side.runs[0]).items() if name != "program"} for side in (base, candidate)
    )
    return tuple(f"The sides differ in {line}." for line in differing(before, after))


@contextmanager
def _gpus() -> Iterator[Any]:
    """What holds the clocks of this machine's GPUs down, where there are any."""
    from profiler.record.collectors._nvml import Gpus

    with ExitStack() as stack:
        gpus = Gpus()
        if gpus.reason:
            yield None
            return
        stack.callback(gpus.close)

        def held() -> tuple[str, ...]:
            used, _ = gpus.read((), uses_cuda=True)
            return tuple(f"GPU {gpu.index}: {reason}" for gpu in used for reason in gpu.throttle or ())

        yield held


# ---------------------------------------------------------------- recorded runs, history


def check_runs(paths: Sequence[Path], settings: GateSettings) -> int:
    """Two runs that were recorded before: their counters; their times are shown and gate nothing."""
    founds = [found_in([path]) for path in paths]
    lines = compare(founds[0].counted, founds[1].counted, settings.limits)
    info = {
        name: side_info(name, str(path), found.runs[0].info.argv, found.runs[0].info.git_commit, runs=found.runs)
        for name, path, found in zip((BASE, CANDIDATE), paths, founds, strict=True)
    }
    result = GateResult(
        base=info[BASE],
        candidate=info[CANDIDATE],
        limits=settings.limits,
        mode="runs",
        counters=lines,
        counters_state=overall(lines),
        doubts=_unlike(*founds),
        notes=_OF_RUNS,
        machine=fingerprint(founds[1].runs),
    )
    return finish(result, settings, sides=dict(zip((BASE, CANDIDATE), founds, strict=True)))


def show_history(path: Path) -> int:
    """What was checked before."""
    from profiler.commands._gate_history import show

    return show(path)
