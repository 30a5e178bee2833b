"""The key of a baseline's section: the facts that must be equal for counters to be comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from profiler.analyse.compare.comparability import MUST_BE_EQUAL, program_name
from profiler.core.notice import Notice
from profiler.run.model import Run, StepKind

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
_STEP_KINDS: Final = {
    StepKind.MARKED: "marked",
    StepKind.OPTIMIZER: "optimizer steps",
    StepKind.BACKWARD: "backward passes",
    StepKind.LOADER: "batches",
}
"""The event that ends a step, without the name of the optimizer or loader, which a change may replace."""


def environment_key(run: Run) -> dict[str, str]:
    """The facts that the program of a run and its hooks report; unknown facts are left out."""
    facts, key = run.info.facts, dict[str, str]()
    for name in WHY:
        value = facts.get(name)
        if name == "step" and value is None:
            value = _STEP_KINDS.get(run.step.kind, run.step.label) if run.step else None
        elif name == "torch" and value is not None:
            value = str(value).partition("+")[0]  # the build is told by the device
        if value is not None and value != "":
            key[name] = " ".join(str(value).encode("utf-8", "replace").decode("utf-8").split())
    key["hooks"] = "in" if "package" in facts else "out"
    key["program"] = program_name(run.info)
    return {name: value for name, value in sorted(key.items()) if value}


def key_differences(base: Key, candidate: Key, code: str, base_name: str = "base") -> tuple[Notice, ...]:
    """A notice of `code` for each part in which two keys differ; empty where counters are comparable.

    :param base_name: `base`, or `baseline` where it is a file.
    """
    return tuple(
        Notice(
            code,
            {
                "part": name,
                "base": base.get(name),
                "candidate": candidate.get(name),
                "where": base_name,
                "why": WHY.get(name, ""),
            },
        )
        for name in sorted({*base, *candidate})
        if base.get(name) != candidate.get(name)
    )


def nearest_key(keys: Sequence[Key], key: Key) -> int:
    """Index of the key that differs in the fewest parts, the first of equal ones."""
    differences = [sum(other.get(name) != key.get(name) for name in {*other, *key}) for other in keys]
    return differences.index(min(differences))
