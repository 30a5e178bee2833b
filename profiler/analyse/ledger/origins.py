"""Tells whose code a stack sample shows, and which line of the user's it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from profiler.analyse.ledger.cells import Owner
from profiler.analyse.sampling.stacks import Stacks
from profiler.run.code_origin import USER
from profiler.run.model import Site


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose code a stack runs."""

    owner: Owner
    package: str
    place: Site | None
    function: str
    """The innermost function below the place, as its module and name, of a library its own; empty: the place itself."""


def origin_of(stacks: Stacks, number: int) -> Origin:
    """The origin of a stack."""
    stack = stacks[number]
    place = stacks.relative(stack.site) if stack.owner == USER else None
    if stack.imports:
        return Origin(Owner.IMPORT, stack.imports, place, "")
    if place is None:
        return Origin(Owner.LAUNCHER if stack.site.file else Owner.UNKNOWN, "", None, stack.calls)
    if stack.package:
        return Origin(Owner.LIBRARY, stack.package, place, stack.inside)
    if stack.calls_torch:
        return Origin(Owner.TORCH, "", place, stack.calls)
    return Origin(Owner.PYTHON if stack.calls else Owner.USER, "", place, stack.calls)
