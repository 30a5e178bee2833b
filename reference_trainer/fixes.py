"""Fixes of a trainer: the plan that a set of them makes, the variants as-found and fixed, and the list for a ladder.

A plan is a frozen dataclass with a field for each choice; its defaults are the slow program. A fix changes fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from reference_trainer.errors import TrainerError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = TypeVar("P", bound="DataclassInstance")

Kind = Literal["cure", "on top", "instead", "work"]
"""cure: part of the variant fixed | on top: added to fixed by name only | instead: an alternative to those that it
excludes | work: other work"""


@dataclass(frozen=True, slots=True)
class Fix:
    """A change of the trainer that removes a cost."""

    name: str
    code: tuple[str, ...]
    """The files that contain its code, below this package."""
    removes: str
    """The cost that it removes, in words."""
    rule: str
    """The rule of `profiler.diagnose.rules` that recognizes what this fix removes; empty: there is none."""
    changes: Mapping[str, Any]
    """Fields of the plan and their new values."""
    requires: tuple[str, ...] = ()
    """Fixes without which this one means nothing."""
    excludes: tuple[str, ...] = ()
    """Fixes that it cannot be combined with."""
    kind: Kind = "cure"
    device: str = ""
    """The only kind of device that it is for; empty: any."""
    rule_left_out: str = ""
    """The rule that recognizes in the variant fixed that this fix was left out, if that is not `rule`."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files with their package, as the report names them."""
        return tuple(f"reference_trainer/{file}" for file in self.code)

    def unavailable(self, device: str) -> str:
        """Why the fix is left out on a device of that kind (empty: whatever the device); empty: it is available."""
        if device and self.device not in ("", device):
            return f"needs device {self.device}, this is device {device}"
        return ""


@dataclass(frozen=True, slots=True)
class FixSet(Generic[P]):
    """All fixes of one trainer."""

    all_fixes: tuple[Fix, ...]
    """In the order of the ladder: each stands after those that it requires."""
    as_found: P
    """The plan without any."""

    def fixes(self) -> dict[str, Fix]:
        """All fixes by name, in the order of the ladder."""
        return {fix.name: fix for fix in self.all_fixes}

    def plan(self, names: Iterable[str], device: str = "") -> P:
        """The as-found plan with these fixes.

        :param device: kind of the device that it is for; empty: none in particular.
        :raises TrainerError: an unknown name, a missing requirement, fixes that exclude each other, or another
            device's.
        """
        fixes, chosen, result = self.fixes(), tuple(names), self.as_found
        for name in chosen:
            if name not in fixes:
                raise TrainerError(f"unknown fix {name!r}: choose from {', '.join(fixes)}")
        for name, fix in fixes.items():
            if name not in chosen:
                continue
            missing = [required for required in fix.requires if required not in chosen]
            if missing:
                them = "it" if len(missing) == 1 else "them"
                raise TrainerError(f"fix {name!r} means nothing without {', '.join(missing)}: add {them}")
            conflicts = [excluded for excluded in fix.excludes if excluded in chosen]
            if conflicts:
                raise TrainerError(f"fix {name!r} means nothing beside {', '.join(conflicts)}: leave one out")
            if device and fix.device not in ("", device):
                raise TrainerError(f"fix {name!r} needs device {fix.device}, this is device {device}: leave it out")
            result = replace(result, **fix.changes)
        return result

    def variant_fixes(self, variant: str, device: str = "") -> tuple[str, ...]:
        """The fixes of a variant: as-found has none, fixed has all of kind `cure` that are available there.

        :raises TrainerError: there is no such variant.
        """
        if variant == "as-found":
            return ()
        if variant == "fixed":
            return tuple(fix.name for fix in self.all_fixes if fix.kind == "cure" and not fix.unavailable(device))
        raise TrainerError(f"unknown variant {variant!r}: choose as-found or fixed")

    def listing(self, device: str) -> dict[str, Any]:
        """All fixes, as `--list-fixes` prints them for a device of that kind: what a ladder is planned from."""
        fields = ("name", "removes", "rule", "requires", "excludes", "kind")
        listed = [
            {
                **{field: getattr(fix, field) for field in fields},
                "rule_left_out": fix.rule_left_out or fix.rule,
                "available": not fix.unavailable(device),
                "why_not": fix.unavailable(device),
            }
            for fix in self.all_fixes
        ]
        return {
            "device": device,
            "fixes": listed,
            "fixed": self.variant_fixes("fixed", device),
        }
