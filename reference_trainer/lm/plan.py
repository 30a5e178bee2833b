"""Which way each stage of the step is done: a plan is the illness, a fix changes one part of it.

A variant is a named set of fixes over the as-found plan. Fixes are the modules of `reference_trainer.lm.fixes`
with a `PLUGIN`; adding one is adding one file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from reference_trainer.cures import KINDS, Cures, Fix
from reference_trainer.lm.settings import Settings

__all__ = ["KINDS", "SWEEP", "Fix", "Plan", "fixes", "listing", "plan", "variant_fixes"]


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


SWEEP: Final = (375, 750, 1500, 3000)
"""Tokens a chunk of the quick fix that was tried first: smaller chunks."""
_CURES: Final = Cures("reference_trainer.lm.fixes", Plan())


def fixes() -> dict[str, Fix]:
    """All fixes by name, in the order of the ladder."""
    return _CURES.fixes()


def plan(names: Iterable[str], device: str = "") -> Plan:
    """The as-found plan with these fixes.

    :param device: kind of the device that it is for; empty: none in particular.
    :raises TrainerError: an unknown name, a missing requirement, fixes that exclude each other, or another device's.
    """
    return _CURES.plan(names, device)


def variant_fixes(variant: str, device: str = "") -> tuple[str, ...]:
    """The fixes of a variant: as-found has none, fixed has every cure there is for such a device."""
    return _CURES.variant_fixes(variant, device)


def listing(device: str) -> dict[str, Any]:
    """All fixes, as `--list-fixes` prints them for a device of that kind: what a ladder is planned from."""
    return _CURES.listing(device, sweep=SWEEP, tokens_per_chunk=Settings().tokens_per_chunk)
