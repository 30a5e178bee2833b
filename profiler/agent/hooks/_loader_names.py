"""Names loaders by the user's line that made them: the same for one loader, another for another.

Loaders that a program makes anew in each epoch share a name; those that a helper makes side by side do not.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Any, Final

from profiler.agent.patching import user_frame

_DEEPEST: Final = 40
"""Frames of a stack that tell one place of making from another: beyond these only launchers differ."""

_MOST_LOADERS: Final = 1000
"""Of which names are known, and of places that make them."""

_Place = tuple[tuple[CodeType, int], ...]


@dataclass(eq=False, slots=True)
class _Named:
    """A name, and the last loader that bears it."""

    label: str
    loader: weakref.ref[Any]
    name: str = ""
    """Empty until its batches are asked for: many a loader is only a pattern for a framework's own."""
    used: bool = False


class LoaderNames:
    """Gives names; about 20 µs for each loader that is made."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[Any, ...], list[_Named]] = {}
        self._by_loader: dict[int, _Named] = {}  # by id: a loader need not have a hash
        self._taken: dict[str, int] = {}

    def made(self, loader: Any, frame: FrameType | None) -> None:
        """Name `loader`, which `frame` has made: where it stood before, if that one was used and is not needed now."""
        made_by = user_frame(frame)
        if made_by is None:
            return
        kind = (_type_of(loader, "dataset"), _type_of(loader, "sampler"), vars(loader).get("batch_size"))
        if len(self._by_place) >= _MOST_LOADERS:
            self._by_place.clear()
        known = self._by_place.setdefault((_place(frame), *kind), [])
        named = next((one for one in known if _same_data(one.loader(), loader)), None)
        named = named or next((one for one in known if one.used or one.loader() is None), None)
        if named is None:
            label = f"{type(loader).__name__} ({PurePath(made_by.f_code.co_filename).name}:{made_by.f_lineno})"
            named = _Named(label, weakref.ref(loader))
            known.append(named)
        named.loader, named.used = weakref.ref(loader), False
        if len(self._by_loader) >= _MOST_LOADERS:  # a program that makes them as it goes: most are gone
            self._by_loader = {key: one for key, one in self._by_loader.items() if one.loader() is not None}
        self._by_loader[id(loader)] = named

    def asked(self, loader: Any) -> str:
        """The name of a loader whose batches are asked for."""
        named = self._by_loader.get(id(loader))
        if named is None or named.loader() is not loader:
            return type(loader).__name__
        named.used = True
        if not named.name:
            number = self._taken[named.label] = self._taken.get(named.label, 0) + 1
            named.name = named.label if number == 1 else f"{named.label} #{number}"
        return named.name


def _place(frame: FrameType | None) -> _Place:
    place: list[tuple[CodeType, int]] = []
    while frame is not None and len(place) < _DEEPEST:
        place.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(place)


def _type_of(loader: Any, name: str) -> type:
    return type(vars(loader).get(name))


def _same_data(before: Any, loader: Any) -> bool:
    return before is not None and vars(before).get("dataset") is vars(loader).get("dataset")
