"""Whether runs may be compared at all: the facts that must be equal, and why each of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

from profiler.analyse.model import Analysis, Mismatch
from profiler.analyse.ratios import SideRuns
from profiler.run.model import RunInfo

MUST_BE_EQUAL: Final[Mapping[str, str]] = {
    "device": "another device does the same work at another speed",
    "work": "other mathematics: learning does more than a forward pass, empty kernels do nothing",
    "preset": "a model of another size is other work",
    "dtype": "narrower numbers are less work, and give other results",
    "step": "per-step figures of different steps mean nothing beside each other",
    "tokens_per_chunk": "a step of another size",
    "samples_per_chunk": "a step made of other pieces: more to tokenize for as many tokens",
    "corpus": "another text",
    "corpus_sha256": "another text under the same name",
    "tokenizer": "the same text becomes other tokens",
    "seed": "other weights, and other predictions from them",
    "unit": "what is counted a second is something else",
    "methods": "other ways of fitting do other work",
    "seeds": "other teachers, measurements and students: more or fewer jobs, or others",
    "teacher_ranks": "teachers of other ranks are other problems",
    "student_dims": "students of other dimensions are other work",
    "sequence_length": "sequences of another length are other work",
    "measurements": "students that are fitted to more or fewer sequences do other work",
    "budget": "fits that stop at other losses, or after other numbers of updates or guesses, do other work",
}
"""Fact that a program states through marks.describe -> why sides that differ in it are not comparable."""

_OF_TEXT: Final = ("preset", "tokens_per_chunk", "samples_per_chunk", "corpus", "corpus_sha256", "tokenizer", "seed")
_OF_SWEEP: Final = (
    "methods",
    "seeds",
    "teacher_ranks",
    "student_dims",
    "sequence_length",
    "measurements",
    "budget",
)
"""Facts of those that train on text, and of sweeps: who states some of one kind is not asked for the other's."""
_ONLY_OF_SWEEPS: Final = (*_OF_SWEEP, "unit")
"""Anyone may count other things than tokens: that alone makes no sweep, and who states nothing counts tokens."""
_ENOUGH_OF_SWEEP: Final = 2
"""One such word may be anyone's: models of text have a `sequence_length` too."""

HOST_FACTS: Final[Mapping[str, str]] = {
    "cpu": "another processor runs the same program at another speed",
    "cores": "another number of cores changes what can run at once",
}
"""The same for the machine."""

_OF_WORK: Final = ("work", "preset", "step", "corpus", "corpus_sha256", "tokens_per_chunk", "seeds", "student_dims")
"""Facts by which a program says what its work is: those are then compared, not its name."""
_PLACE: Final = re.compile(r" \(|[;,:] ")
_LONGEST: Final = 60
NOT_STATED: Final = "not stated"


def find_mismatches(
    sides: Sequence[SideRuns], *, but: Collection[str] = (), same_program: bool = False
) -> tuple[Mismatch, ...]:
    """Why the sides are not comparable; empty when they are.

    Every run, the detailed ones too, is held against the first of the baseline. What no run states is not held
    against anyone: `unstated` lists it. Facts in `but` may differ.

    :param same_program: the sides were not named as two programs, so that they should be runs of one.
    """
    infos = [run.info for side in sides for run in runs_of(side)]
    mismatches: dict[Mismatch, None] = {}
    for info in infos[1:]:
        mismatches |= dict.fromkeys(_between(_identity(infos[0], but), _identity(info, but)))
    light = [run for side in sides for run in side.light]
    mismatches |= _unlike("step", [what_a_step_is(run) for run in light])
    if same_program and not any(name in info.facts for info in infos for name in _OF_WORK):
        mismatches |= _unlike("program", [program_of(run.info) for run in light])
    levels = [run.info.level for side in sides for run in side.light]
    mismatches |= dict.fromkeys(Mismatch("level", levels[0], level) for level in levels if level != levels[0])
    return tuple(mismatches)


def _unlike(what: str, words: Sequence[str]) -> dict[Mismatch, None]:
    known = [word for word in words if word]
    return dict.fromkeys(Mismatch(what, known[0], word) for word in known if word != known[0])


def what_a_step_is(run: Analysis) -> str:
    """What ended a step, without its place: an edited program has other lines; empty where there is none."""
    return run.step.label if run.step else ""


def program_of(info: RunInfo) -> str:
    """The script in a command line, or the module of `-m`; empty where there is none."""
    for at, word in enumerate(info.argv):
        if word == "-m":
            return info.argv[at + 1] if at + 1 < len(info.argv) else ""
        if word.endswith(".py"):
            return PurePath(word).name
    return ""


def unstated(sides: Sequence[SideRuns]) -> tuple[str, ...]:
    """Facts that should be equal and that no run states; of a sweep's only where they state two of them."""
    stated = {name for side in sides for run in runs_of(side) for name in run.info.facts}
    missing = [name for name in MUST_BE_EQUAL if name not in stated]
    if len(stated.intersection(_OF_SWEEP)) < _ENOUGH_OF_SWEEP:
        return tuple(name for name in missing if name not in _ONLY_OF_SWEEPS)
    if stated.isdisjoint(_OF_TEXT):
        return tuple(name for name in missing if name not in _OF_TEXT)
    return tuple(missing)


def runs_of(side: SideRuns) -> tuple[Analysis, ...]:
    """All runs of a side, the detailed one last."""
    return (*side.light, *((side.detail,) if side.detail else ()))


def _identity(info: RunInfo, but: Collection[str]) -> Mapping[str, Any]:
    stated = {name: info.facts[name] for name in MUST_BE_EQUAL if name in info.facts and name not in but}
    stated |= {f"host {name}": info.host[name] for name in HOST_FACTS if name in info.host}
    if info.facts.get("device") in ("cuda", None) and info.devices:
        stated["GPUs"] = ", ".join(str(device.get("name", "unnamed")) for device in info.devices)
    return stated


def _between(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterable[Mismatch]:
    for name in dict.fromkeys((*one, *other)):
        if name not in one or name not in other or one[name] != other[name]:
            yield Mismatch(name, _shown(one, name), _shown(other, name))


def _shown(facts: Mapping[str, Any], name: str) -> str:
    text = str(facts[name]) if name in facts else NOT_STATED
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
