"""The modes of `check`, from what is asked for to a result: wiring between the rooms."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from profiler.check.command.baseline import Counting, Held, against_file, held_against, steps_of, updated
from profiler.check.command.found import Found, count_steps, found_in
from profiler.check.command.programs import as_is, program_of, programs_of
from profiler.check.command.results import finish
from profiler.check.command.settings import GateSettings
from profiler.check.command.sides import fingerprint, side_info
from profiler.check.command.turns import by_turns, unlike
from profiler.check.counters import compare, overall
from profiler.check.model import BASE, CANDIDATE, GateResult
from profiler.check.speed.controlled_process import ControlledProcess, Program
from profiler.core.errors import ProfilerError

_OF_RUNS = (
    "Recorded at different times: how fast they were gates nothing; --against REV or --before and --after do.",
    "One process a side: a counter that varies by itself cannot be told from one that changed.",
)
_HINT = "the revision has only what git keeps: --link PATH shows it data from outside git"


def check_command(command: tuple[str, ...], settings: GateSettings) -> int:
    """A command against a baseline's counters, or those written down."""
    settings = replace(settings, steps=steps_of(settings))
    side = as_is(command)
    program = program_of(CANDIDATE, side)
    if settings.update:
        return updated(program, settings, _counting(program, settings))
    held = held_against(program, settings, _counting(program, settings))
    return finish(against_file(held, side.argv, side.commit, settings), settings)


def _counting(program: Program, settings: GateSettings) -> Counting:
    def counting(processes: int, first: int) -> Found:
        return count_steps(program, settings, processes, first)

    return counting


def check_commands(before: str, after: str, settings: GateSettings) -> int:
    """Two commands, each in its own words."""
    sides = {}
    for side, option, text in ((BASE, "before", before), (CANDIDATE, "after", after)):
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise ProfilerError(f'--{option} "{text}": {error}') from None
        if not words:
            raise ProfilerError(f"--{option}: there is no command in it")
        sides[side] = replace(as_is(words), what="", commit="")
    return by_turns(sides, programs_of(sides[BASE], sides[CANDIDATE]), settings, mode="commands")


def check_against(command: tuple[str, ...], settings: GateSettings, rev: str) -> int:
    """A command here and in a revision; its counters against a baseline too, where there is one."""
    from profiler.check.worktree.paths import working_tree_files
    from profiler.check.worktree.prepare import RevisionRequest, prepare_revision

    if settings.baseline is not None:
        settings = replace(settings, steps=steps_of(settings))  # before anything is made ready
    candidate = as_is(command)
    request = RevisionRequest(rev, command, Path.cwd(), settings.links, settings.environment)
    with prepare_revision(request, lambda line: print(line, file=sys.stderr, flush=True)) as base:
        repository = base.repository

        def admit(process: ControlledProcess) -> None:
            if process.program.side == CANDIDATE or repository is None:
                return
            if own := working_tree_files(process.controller.files, repository):
                raise ProfilerError(
                    f"the base runs code of the working tree ({own[0]}{f' and {len(own) - 1} more' * (len(own) > 1)}), "
                    f"so both sides would be the same: is the project installed in the environment from this folder? "
                    f"Start it from its sources (python -m ...), or use --environment auto"
                )

        programs = programs_of(base, candidate, hint=_HINT)
        held: Held | None = None
        if settings.baseline is not None:
            held = held_against(programs[CANDIDATE], settings, _counting(programs[CANDIDATE], settings))
        sides = {BASE: base, CANDIDATE: candidate}
        return by_turns(sides, programs, settings, mode="against", held=held, admit=admit)


def check_runs(paths: Sequence[Path], settings: GateSettings) -> int:
    """Two runs that were recorded before: their counters; their times are shown and gate nothing."""
    founds = [found_in([path]) for path in paths]
    lines = compare(founds[0].counted, founds[1].counted, settings.limits)
    info = {
        name: side_info(name, str(path), found.runs[0].info.argv, found.runs[0].info.git_commit, found=found)
        for name, path, found in zip((BASE, CANDIDATE), paths, founds, strict=True)
    }
    result = GateResult(
        base=info[BASE],
        candidate=info[CANDIDATE],
        limits=settings.limits,
        mode="runs",
        counters=lines,
        counters_state=overall(lines),
        doubts=unlike(*founds),
        notes=_OF_RUNS,
        machine=fingerprint(founds[1].runs),
    )
    return finish(result, settings, sides=dict(zip((BASE, CANDIDATE), founds, strict=True)))


def show_history(path: Path) -> int:
    """What was checked before."""
    from profiler.check.command.history import show

    return show(path)
