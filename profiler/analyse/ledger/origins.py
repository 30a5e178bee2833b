"""Tells whose code a stack sample shows, and which line of the user's it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from profiler.analyse.model.ledger import Owner
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
    called_by: str = ""
    """The time is in a library: the innermost function of another library that calls it; empty: none does."""
    registered_at: Site | None = None
    """The time is in a hook: the user's line that registered it. None: it is the place itself, there is no hook, or the
    line is not known."""

    def without_functions(self) -> Origin:
        """The origin without what may differ between stacks of the same library at the same place."""
        return Origin(self.owner, self.package, self.place, "")


def origin_of(stacks: Stacks, number: int) -> Origin:
    """The origin of a stack."""
    stack = stacks[number]
    place = stacks.relative(stack.site) if stack.owner == USER else None
    if stack.imports:
        return Origin(Owner.IMPORT, stack.imports, place, "")
    registered = stacks.registration(number)
    if registered is not None and place is not None and registered.place == place.place:
        registered = None
    if place is None:
        return Origin(Owner.LAUNCHER if stack.site.file else Owner.UNKNOWN, "", None, stack.calls)
    if stack.package:
        return Origin(Owner.LIBRARY, stack.package, place, stack.inside, stack.called_by, registered)
    if stack.calls_torch:
        return Origin(Owner.TORCH, "", place, stack.calls, "", registered)
    return Origin(Owner.PYTHON if stack.calls else Owner.USER, "", place, stack.calls, "", registered)
