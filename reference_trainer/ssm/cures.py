"""The fixes of the sweep, found in `reference_trainer.ssm.fixes`, and the plans that they make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from reference_trainer.cures import Cures, Fix
from reference_trainer.ssm.plan import Plan

_CURES: Final = Cures("reference_trainer.ssm.fixes", Plan())


def fixes() -> dict[str, Fix]:
    """All fixes by name, in the order of the ladder."""
    return _CURES.fixes()


def plan(names: Iterable[str], device: str = "") -> Plan:
    """The as-found plan with these fixes.

    :param device: kind of the device that it is for, cpu or cuda; empty: none in particular.
    :raises TrainerError: an unknown name, a missing requirement, fixes that exclude each other, or another device's.
    """
    return _CURES.plan(names, device)


def variant_fixes(variant: str, device: str = "") -> tuple[str, ...]:
    """The fixes of a variant: as-found has none, fixed has every cure there is for such a device."""
    return _CURES.variant_fixes(variant, device)


def listing(device: str) -> dict[str, Any]:
    """All fixes, as `--list-fixes` prints them for a device of that kind."""
    return _CURES.listing(device)
