"""Cures of a trainer as plug-ins: found in a package, listed as a ladder, and what a set of them makes of its plan.

A plan is a frozen dataclass, one field a choice, whose defaults are the illness. A fix changes some of its fields; a
variant is a named set of fixes. A fix is a module of the trainer's package of fixes with a `PLUGIN`; adding one is
adding one file.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from reference_trainer.errors import TrainerError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = TypeVar("P", bound="DataclassInstance")

KINDS: Final = ("cure", "instead", "work")


@dataclass(frozen=True, slots=True)
class Fix:
    """One cure."""

    name: str
    removes: str
    """The cost that it removes, in words."""
    rule: str
    """The rule of the profiler that should find the illness."""
    changes: Mapping[str, Any]
    """Fields of the plan and their cured values."""
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


@dataclass(frozen=True, slots=True)
class Cures(Generic[P]):
    """All of one trainer."""

    package: str
    """Whose modules are the fixes."""
    as_found: P
    """The plan without any."""

    def fixes(self) -> dict[str, Fix]:
        """All fixes by name, in the order of the ladder."""
        package = importlib.import_module(self.package)
        found = (
            importlib.import_module(f"{self.package}.{module.name}")
            for module in pkgutil.iter_modules(package.__path__)
        )
        return {fix.name: fix for fix in sorted((module.PLUGIN for module in found), key=lambda fix: fix.order)}

    def plan(self, names: Iterable[str], device: str = "") -> P:
        """The as-found plan with these fixes.

        :param device: kind of the device that it is for; empty: none in particular.
        :raises TrainerError: an unknown name, a missing requirement, fixes that exclude each other, or another
            device's.
        """
        known, chosen, result = self.fixes(), tuple(names), self.as_found
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

    def variant_fixes(self, variant: str, device: str = "") -> tuple[str, ...]:
        """The fixes of a variant: as-found has none, fixed has every cure there is for such a device.

        :raises TrainerError: there is no such variant.
        """
        if variant == "as-found":
            return ()
        if variant == "fixed":
            return tuple(name for name, fix in self.fixes().items() if fix.kind == "cure" and not _why_not(fix, device))
        raise TrainerError(f"unknown variant {variant!r}: choose as-found or fixed")

    def listing(self, device: str, *, sweep: Iterable[int] = (), tokens_per_chunk: int | None = None) -> dict[str, Any]:
        """All fixes, as `--list-fixes` prints them for a device of that kind: what a ladder is planned from.

        :param sweep: sizes of a step at which the quick fix that was tried first is measured, in tokens.
        :param tokens_per_chunk: the size that a step has by default.
        """
        listed = []
        for fix in self.fixes().values():
            entry = {name: getattr(fix, name) for name in ("name", "removes", "rule", "requires", "excludes", "kind")}
            why_not = _why_not(fix, device)
            listed.append({**entry, "available": not why_not, "why_not": why_not})
        full = {"fixed": self.variant_fixes("fixed", device), "tokens_per_chunk": tokens_per_chunk}
        return {"device": device, "fixes": listed, **full, "sweep": tuple(sweep)}


def _why_not(fix: Fix, device: str) -> str:
    """Why a fix is left out on a device of that kind (empty: whatever the device); empty: it is not."""
    if device and fix.device not in ("", device):
        return f"needs device {fix.device}, this is device {device}"
    return fix.unproven
