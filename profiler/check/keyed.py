"""What must be equal for counters to be held against each other, and what to do where it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from profiler.analyse.comparable import MUST_BE_EQUAL, NOT_STATED, program_of
from profiler.run.model import Run, StepDefinition, StepKind

Key = Mapping[str, str]

WHY: Final[Mapping[str, str]] = {
    **MUST_BE_EQUAL,
    "torch": "another torch may wait, copy and launch at other places",
    "parameter_dtype": "narrower numbers are fewer bytes",
    "autocast": "narrower numbers are converted, and may be copied, elsewhere",
    "compile": "compiled code makes other calls",
    "world_size": "another number of ranks does another share of the work",
    "program": "another program",
    "hooks": "without hooks only what the program marks is counted",
}
"""Name of a part of the key -> why counters of sides that differ in it are not comparable."""
_LONGEST: Final = 60


def key_of(run: Run) -> dict[str, str]:
    """The key of a run: what its program and its hooks say of it. What nobody says is left out."""
    facts, key = run.info.facts, dict[str, str]()
    for name in WHY:
        value = facts.get(name)
        if name == "step" and value is None:
            value = _step(run.step) if run.step else None
        elif name == "torch" and value is not None:
            value = str(value).partition("+")[0]  # what it was built for is told by the device
        if value is not None and value != "":
            key[name] = _text(value)
    key["hooks"] = "in" if "package" in facts else "out"
    key["program"] = PurePosixPath(program_of(run.info)).name
    return {name: value for name, value in sorted(key.items()) if value}


_STEP_KEYS: Final = {
    StepKind.MARKED: "marked",
    StepKind.OPTIMIZER: "optimizer steps",
    StepKind.LOADER: "batches",
}


def _step(step: StepDefinition) -> str:
    """What ends a step, but not which optimizer or loader, nor where: a program that changes it still takes steps."""
    return _STEP_KEYS.get(step.kind, step.label)


def _text(value: Any) -> str:
    return " ".join(str(value).encode("utf-8", "replace").decode("utf-8").split())


def mismatch(base: Key, key: Key) -> tuple[str, ...]:
    """Why counters under these keys say nothing about each other, a line each; empty when they do."""
    return tuple(
        f"{line}; a baseline for this one is added with --update" for line in differing(base, key, "the baseline")
    )


def differing(base: Key, key: Key, where: str = "the base") -> tuple[str, ...]:
    """The parts in which two keys differ, a line each: 'dtype: float32 in the base against bfloat16 (...)'."""
    return tuple(
        f"{name}: {_shown(base, name)} in {where} against {_shown(key, name)}{f' ({WHY[name]})' if name in WHY else ''}"
        for name in sorted({*base, *key})
        if base.get(name) != key.get(name)
    )


def nearest(keys: Sequence[Key], key: Key) -> int:
    """Place of the key that differs in the fewest parts, the first of equal ones."""
    differ = [sum(one.get(name) != key.get(name) for name in {*one, *key}) for one in keys]
    return differ.index(min(differ))


def _shown(key: Key, name: str) -> str:
    text = key.get(name, NOT_STATED)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
