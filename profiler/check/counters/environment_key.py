"""Defines the key of a baseline's section: the facts that must be equal for counters to be comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from profiler.analyse.compare.comparability import MUST_BE_EQUAL, batch_sizes
from profiler.check.counters.paths import portable_program
from profiler.core.notice import Notice
from profiler.run.code_origin import working_folder
from profiler.run.model import Run, StepKind
from profiler.run.tables import COUNTED

Key = Mapping[str, str]

WHY: Final[Mapping[str, str]] = {
    **MUST_BE_EQUAL,
    "torch": "another torch may wait, copy and launch at other places",
    "parameter_dtype": "narrower numbers are fewer bytes",
    "autocast": "narrower numbers are converted, and may be copied, elsewhere",
    "compile": "compiled code makes other calls",
    "world_size": "another number of ranks does another share of the work",
    "program": "another program",
    "arguments": "other arguments may mean other work",
    "virtual_devices": "other devices are asked for other work",
    "counting": "operators and memory are counted with --count or --virtual-cuda only, and reads exactly",
    "hooks": "without hooks only what the program marks is counted",
    "batch_size": "a step of another size",
    "batch_items": "a step of another size",
    "steps": "what happens only now and then is counted more or less often",
    "copied": "the copies to the device move other amounts, as with another batch size or other data",
}
"""Name of a part of the key -> why counters of sides that differ in it are not comparable."""
_STEP_KINDS: Final = {
    StepKind.MARKED: "marked",
    StepKind.OPTIMIZER: "optimizer steps",
    StepKind.BACKWARD: "backward passes",
    StepKind.LOADER: "batches",
}
"""The event that ends a step, without the name of the optimizer or loader, which a change may replace."""


def environment_key(run: Run, folder: str = "") -> dict[str, str]:
    """The facts that the program of a run and its hooks report; unknown facts are left out.

    :param folder: in which the command was started, where the run does not report it.
    """
    facts, key = run.info.facts, dict[str, str]()
    for name in WHY:
        value = facts.get(name)
        if name == "step" and value is None:
            value = _STEP_KINDS.get(run.step.kind, run.step.label) if run.step else None
        elif name == "torch" and value is not None:
            value = minor_version(str(value))
        if value is not None and value != "":
            key[name] = " ".join(str(value).encode("utf-8", "replace").decode("utf-8").split())
    key["hooks"] = "in" if "package" in facts else "out"
    key["program"], key["arguments"] = portable_program(run.info.argv, folder or working_folder(run))
    if COUNTED in facts:
        key["counting"] = "exact"
    if "virtual_cuda" in facts:
        key["device"] = "cuda"
        key["virtual_devices"] = f"{facts['virtual_cuda']} {facts.get('virtual_card', '')}".strip()
    return {name: value for name, value in sorted(key.items()) if value}


def minor_version(version: str) -> str:
    """`2.13` of `2.13.0+cpu`: corrections of torch change no counts, and the device tells the build."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def work_of_a_step(facts: Mapping[str, Any]) -> dict[str, str]:
    """The facts that tell how much work a step is, where the loader knows them. They are no part of the key: a program
    whose batches change gets no second section beside its first one."""
    return {"batch_size": sizes} if (sizes := batch_sizes(facts)) else {}


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
