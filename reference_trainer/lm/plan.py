"""Which way each stage of the step is done: a plan is the illness, a fix changes one part of it.

A variant is a named set of fixes over the as-found plan. Fixes are the modules of `reference_trainer.lm.fixes`
with a `PLUGIN`; adding one is adding one file.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from reference_trainer.errors import TrainerError
from reference_trainer.lm.settings import Settings


@dataclass(frozen=True, slots=True)
class Plan:
    """The choices of a step; the defaults are as found."""

    tokenize: str = "inline"
    """inline: sample by sample | batch: one call of the library a chunk | shards: nothing, it was done before"""
    parallel_tokenize: bool = False
    """True: background workers tokenize the next chunks"""
    asynchronous: bool = False
    """True: readouts and predictions stay on the device; results are fetched once a chunk"""
    embed: str = "tokens"
    """tokens: a row of the host's table is uploaded for each token | chunk: one kernel gathers all rows"""
    recurrence: str = "tokens"
    """tokens: a launch a token | chunk: matrix products, and one scan over time a layer"""
    decode: str = "tokens"
    """tokens: a launch a token | chunk: one product and one kernel"""
    loss: str = "host"
    """host: predictions are compared on the host | device: loss, accuracy and reward are reduced where they are"""
    pooled: bool = False
    """True: device memory is allocated once"""
    zero_copy: bool = False
    """True: pinned memory and NumPy views instead of fresh vectors and lists"""
    prefetch: bool = False
    """True: the next chunk is uploaded and put into the queue while the device works on this one"""
    quiet: bool = False
    """True: metrics are summed up on the device and read every so many chunks"""
    blocking_wait: bool = False
    """True: a waiting host thread sleeps instead of spinning"""
    graph: bool = False
    """True: the launches of a chunk are captured once and replayed as one"""
    learn: bool = False
    """True: cross-entropy, backpropagation and AdamW instead of the 0/1 loss and the reward"""


KINDS = ("cure", "instead", "work")


@dataclass(frozen=True, slots=True)
class Fix:
    """One cure."""

    name: str
    removes: str
    """The cost that it removes, in words."""
    rule: str
    """The rule of the profiler that should find the illness."""
    changes: Mapping[str, Any]
    """Fields of `Plan` and their cured values."""
    order: int
    """Its place on the ladder, on which each fix stands above those that it requires."""
    requires: tuple[str, ...] = ()
    """Fixes without which this one means nothing."""
    excludes: tuple[str, ...] = ()
    """Fixes beside which it means nothing."""
    kind: str = "cure"
    """cure: a member of the variant fixed | instead: takes the place of those that it excludes | work: other work"""
    device: str = ""
    """The only kind of device that it is for; empty: any."""
    unproven: str = ""
    """Why it is not in the variant fixed although it could be: only who asks for it by name gets it."""


def fixes() -> dict[str, Fix]:
    """All fixes by name, in the order of the ladder."""
    from reference_trainer.lm import fixes as package

    found = (
        importlib.import_module(f"{package.__name__}.{module.name}")
        for module in pkgutil.iter_modules(package.__path__)
    )
    return {fix.name: fix for fix in sorted((module.PLUGIN for module in found), key=lambda fix: fix.order)}


def plan(names: Iterable[str], device: str = "") -> Plan:
    """The as-found plan with these fixes.

    :param device: kind of the device that it is for; empty: none in particular.
    :raises TrainerError: an unknown name, a missing requirement, fixes that exclude each other, or another device's.
    """
    known, chosen, result = fixes(), tuple(names), Plan()
    for name in chosen:
        if name not in known:
            raise TrainerError(f"unknown fix {name!r}: choose from {', '.join(known)}")
    for name, fix in known.items():
        if name not in chosen:
            continue
        missing = [other for other in fix.requires if other not in chosen]
        if missing:
            them = "it" if len(missing) == 1 else "them"
            raise TrainerError(f"fix {name!r} means nothing without {', '.join(missing)}: add {them}")
        beside = [other for other in fix.excludes if other in chosen]
        if beside:
            raise TrainerError(f"fix {name!r} means nothing beside {', '.join(beside)}: leave one out")
        if device and fix.device not in ("", device):
            raise TrainerError(f"fix {name!r} needs device {fix.device}, this is device {device}: leave it out")
        result = replace(result, **fix.changes)
    return result


def variant_fixes(variant: str, device: str = "") -> tuple[str, ...]:
    """The fixes of a variant: as-found has none, fixed has every cure there is for such a device."""
    if variant == "as-found":
        return ()
    if variant == "fixed":
        return tuple(name for name, fix in fixes().items() if fix.kind == "cure" and not _why_not(fix, device))
    raise TrainerError(f"unknown variant {variant!r}: choose as-found or fixed")


def _why_not(fix: Fix, device: str) -> str:
    """Why a fix is left out on a device of that kind (empty: whatever the device); empty: it is not."""
    if device and fix.device not in ("", device):
        return f"needs device {fix.device}, this is device {device}"
    return fix.unproven


def listing(device: str) -> dict[str, Any]:
    """All fixes, as `--list-fixes` prints them for a device of that kind: what a ladder is planned from."""
    listed = []
    for fix in fixes().values():
        entry = {name: getattr(fix, name) for name in ("name", "removes", "rule", "requires", "excludes", "kind")}
        why_not = _why_not(fix, device)
        listed.append({**entry, "available": not why_not, "why_not": why_not})
    full = {"fixed": variant_fixes("fixed", device), "tokens_per_chunk": Settings().tokens_per_chunk}
    return {"device": device, "fixes": listed, **full, "sweep": SWEEP}


SWEEP = (375, 750, 1500, 3000)
"""Tokens a chunk of the quick fix that was tried first: smaller chunks."""
