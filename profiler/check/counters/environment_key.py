"""Tells whether counters are comparable: the key of a baseline's section, and how much work a step is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from profiler.analyse.comparability import MUST_BE_EQUAL, batch_sizes
from profiler.analyse.window import measured_window, process_rows
from profiler.check.counters.files import portable_program
from profiler.check.model import Counted
from profiler.core.errors import Notice
from profiler.core.metrics import EVALUATION, NUMBER
from profiler.run.code_origin import working_folder
from profiler.run.model import Run, StepKind
from profiler.run.tables import BATCH_ITEMS, COUNTED, BoundaryKind

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
}
"""Name of a part of the key -> why counters of sides that differ in it are not comparable."""
_OF_SAMPLES: Final = (
    "syncs", "h2d", "h2d_bytes", "d2h", "launches", "tokenized", "operators", "flops", "allocated_bytes",
)  # fmt: skip
"""Counters whose amounts per sample say something where the batches of two sides differ."""
_NEARLY_ALL: Final = 0.7
"""Share of steps that take equally many batches: others end an epoch, or contain a validation. A choice."""
AUTOCAST: Final = "autocast"
WORK: Final = (
    "batch_size", "accumulation", "parameters", "parameter_dtype", AUTOCAST, "dtype", "world_size", "work", "preset",
    "tokens_per_chunk", "samples_per_chunk", "sequence_length", "corpus", "corpus_sha256", "tokenizer", "steps",
)  # fmt: skip
"""Facts that tell how much work a step is. Each counts only where both sides know it; autocast is off where it is not
known."""
_STEP_KINDS: Final = {
    StepKind.MARKED: "marked",
    StepKind.OPTIMIZER: "optimizer steps",
    StepKind.BACKWARD: "backward passes",
    StepKind.LOADER: "batches",
}
"""The event that ends a step, without the name of the optimizer or loader, which a change may replace."""


def environment_key(run: Run, folder: str = "") -> dict[str, str]:
    """Return the facts that the program of a run and its hooks report; unknown facts are left out.

    :param folder: in which the command was started, where the run does not report it.
    """
    facts, key = run.info.facts, dict[str, str]()
    for name in WHY:
        value = facts.get(name)
        if name == "step" and value is None:
            value = _STEP_KINDS.get(run.step.kind, run.step.label) if run.step else None
        elif name == "torch" and value is not None:
            # corrections of torch change no counts, and the device tells the build: 2.13 of 2.13.0+cpu
            value = ".".join(str(value).partition("+")[0].split(".")[:2])
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


def work_of_a_step(run: Run) -> dict[str, str]:
    """Return the batch size, the batches per step and the number of parameters, where hooks know them. They are no part
    of the key: a program whose batches change gets no second section beside its first one."""
    facts, work = run.info.facts, dict[str, str]()
    if sizes := batch_sizes(facts):
        work["batch_size"] = sizes
    if batches := _batches_per_step(run):
        work["accumulation"] = str(batches)
    optimizers = facts.get("optimizers")
    if isinstance(optimizers, list) and (elements := sum(each.get("elements", 0) for each in optimizers)):
        work["parameters"] = str(elements)
    return work


def _batches_per_step(run: Run) -> int:
    """Return how many batches nearly all steps take; 0 where no loader gives them, where they end the steps, or where
    steps take different numbers, as those of two optimizers by turns do."""
    window = measured_window(run)
    if not len(window) or run.step is None or run.step.kind is StepKind.LOADER:
        return 0
    rows = process_rows(run.boundaries, window)
    batches = rows[(rows["kind"] == BoundaryKind.LOADER) & (rows["flag"] == 0)]
    steps = window.step_rows(batches["time"])
    frequency = np.bincount(np.bincount(steps[steps >= 0], minlength=len(window)))
    return int(frequency.argmax()) if frequency.max() >= _NEARLY_ALL * len(window) else 0


def other_work(base: Key, candidate: Key, where: str = "base") -> tuple[Notice, ...]:
    """Return a notice for each fact that makes a step of the candidate other work; empty where counts are comparable.

    :param where: `base`, or `baseline` where it is a file.
    """
    parts = ((name, base.get(name), candidate.get(name)) for name in WORK)
    return tuple(
        Notice("work-differs", {"part": name, "base": before, "candidate": after, "where": where})
        for name, before, after in parts
        if before != after and (name == AUTOCAST or None not in (before, after))
    )


def per_sample(base: Sequence[Counted], candidate: Sequence[Counted]) -> tuple[Notice, ...]:
    """Return the counts per sample of both sides, where their loaders tell how many samples they gave to steps."""
    if any(process.totals.get(f"{EVALUATION}{NUMBER}") for process in (*base, *candidate)):
        return ()  # the samples of an evaluation count, but what it does is kept apart
    before, after = (
        {name: sum(process.totals.get(name, 0.0) for process in side) for name in (BATCH_ITEMS, *_OF_SAMPLES)}
        for side in (base, candidate)
    )
    samples = before[BATCH_ITEMS], after[BATCH_ITEMS]
    names = [name for name in _OF_SAMPLES if before[name] or after[name]]
    if not names or not all(samples):
        return ()
    counts = [(name, before[name] / samples[0], after[name] / samples[1]) for name in names]
    return (Notice("per-sample", {"counters": counts}),)


def key_differences(base: Key, candidate: Key, code: str, base_name: str = "base") -> tuple[Notice, ...]:
    """Return a notice of `code` for each part in which two keys differ; empty where counters are comparable.

    :param base_name: `base`, or `baseline` where it is a file.
    """
    parts = ((name, base.get(name), candidate.get(name)) for name in sorted({*base, *candidate}))
    return tuple(
        Notice(code, {"part": name, "base": old, "candidate": new, "where": base_name, "why": WHY.get(name, "")})
        for name, old, new in parts
        if old != new
    )


def nearest_key(keys: Sequence[Key], key: Key) -> int:
    """Return index of the key that differs in the fewest parts, the first of equal ones."""
    differences = [sum(other.get(name) != key.get(name) for name in {*other, *key}) for other in keys]
    return differences.index(min(differences))
