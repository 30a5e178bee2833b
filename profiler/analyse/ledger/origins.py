"""Tells whose code a stack sample shows, and which line of the user's it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from profiler.analyse.ledger.cells import Owner
from profiler.analyse.sampling.frames import callee_name
from profiler.analyse.sampling.stacks import Stacks
from profiler.run.code_origin import LIBRARY, OURS, TORCH, USER, code_owner, is_standard_library, relative_path
from profiler.run.model import Site


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose code a stack runs."""

    owner: Owner
    package: str
    place: Site | None
    function: str


class Origins:
    """The origin of each stack of a run, found once."""

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self._known: dict[int, Origin] = {}

    def __getitem__(self, number: int) -> Origin:
        if number not in self._known:
            self._known[number] = self._find(number)
        return self._known[number]

    def _find(self, number: int) -> Origin:
        stacks = self._stacks
        frames = stacks.run.stack_frames[number]
        owners = [code_owner(site.file, stacks.folders) for site in frames]
        user = max((at for at, owner in enumerate(owners) if owner == USER), default=-1)
        place = stacks.relative(frames[user]) if user >= 0 else None
        below = [
            (site, owner) for site, owner in zip(frames[user + 1 :], owners[user + 1 :], strict=True) if owner != OURS
        ]
        named = next((site for site, _ in reversed(below) if not site.file.startswith("<")), None)
        function = callee_name(named, stacks.folders) if named else ""
        if imported := stacks[number].imports:
            return Origin(Owner.IMPORT, imported, place, function)
        if place is None:
            return Origin(Owner.LAUNCHER if frames else Owner.UNKNOWN, "", None, function)
        libraries = [site for site, owner in below if owner == LIBRARY and not is_standard_library(site.file)]
        if libraries:
            return Origin(Owner.LIBRARY, self._package(libraries[-1]), place, function)
        if any(owner == TORCH for _, owner in below):
            return Origin(Owner.TORCH, "", place, function)
        return Origin(Owner.PYTHON if below else Owner.USER, "", place, function)

    def _package(self, site: Site) -> str:
        """The package of a library, by its folder below that in which packages are installed."""
        path = relative_path(site.file, self._stacks.folders)
        return path.lstrip("/").partition("/")[0].removesuffix(".py")
