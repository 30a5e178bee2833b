"""Tells whose code a stack sample shows, and which line of the user's it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from profiler.analyse.ledger.cells import Owner
from profiler.analyse.sampling.frames import callee_name
from profiler.analyse.sampling.stacks import Stacks
from profiler.run.code_origin import LIBRARY, TORCH, is_standard_library, relative_path
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
        frames, below = stacks.run.stack_frames[number], stacks.frames_below(number)
        user = next((site for site in reversed(frames) if stacks.is_user(site)), None)
        place = stacks.relative(user) if user is not None else None
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
