"""What a hook is, and the one way in which it replaces a function of someone else's: so that it can be taken back."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, ClassVar, Final, Protocol

from profiler.agent.bootstrap import warn
from profiler.agent.recorder import Recorder

_OURS: Final = __file__.rpartition("agent")[0]
_LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "<frozen", "<string>", "<__array_function__")
_STANDARD: Final = f"{os.path.dirname(os.__file__)}/"  # noqa: PTH120 - as code objects have it; below it, site-packages


class State:
    """The recorder of this process for the hooks: theirs to ask at each call, since a fork has a new one."""

    __slots__ = ("recorder",)

    def __init__(self) -> None:
        self.recorder: Recorder | None = None


STATE: Final = State()


class Hook(Protocol):
    """Watches one library. Its `install` runs right after the program has imported one of `modules`."""

    name: ClassVar[str]
    modules: ClassVar[tuple[str, ...]]
    levels: ClassVar[tuple[str, ...]]
    """The levels at which it is installed."""

    def install(self, module: ModuleType) -> None:
        """Replace what must be replaced in `module`, by `patch`. At level light: counts only, no times, no sites.

        Whatever goes wrong in it is reported and leaves the program as it was.
        """


@dataclass(eq=False, slots=True)
class Patch:
    """One function that a wrapper stands for.

    :param own: whether `owner` had it itself, and did not only inherit it.
    """

    owner: Any
    name: str
    own: bool
    original: Any
    wrapper: Any

    def is_active(self) -> bool:
        """Whether nobody has put something else in the place of ours since."""
        return vars(self.owner).get(self.name) is self.wrapper

    def undo(self) -> None:
        """What the program has put over ours is its own: that stays, and goes on by way of our wrapper."""
        if self.is_active():
            if self.own:
                setattr(self.owner, self.name, self.original)
            else:
                delattr(self.owner, self.name)


@dataclass(eq=False, slots=True)
class _Lent:
    """Stands among the patches for something that a library took from us."""

    undo: Callable[[], object]


_patches: Final[list[Patch | _Lent]] = []


def patch(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Replace `owner.name` by `make(original)`, which keeps the original's name, text and signature.

    A function that another module defines is replaced there too, so that it stays one function under both names; and
    a wrapper is pickled by where it is found.

    :param owner: a module or a class; where a class only inherits `name`, it gets one of its own.
    """
    original = getattr(owner, name)
    home = _home(owner, name, original)
    wrapper = make(original)
    functools.update_wrapper(wrapper, original)
    unbound = isinstance(owner, type) and isinstance(vars(owner).get(name), (staticmethod, BuiltinFunctionType))
    for place, under in ((owner, name), *home):
        placed = staticmethod(wrapper) if unbound else wrapper
        _patches.append(Patch(place, under, under in vars(place), vars(place).get(under), placed))
        setattr(place, under, placed)
    if not _is_found(wrapper):
        wrapper.__module__ = owner.__module__ if isinstance(owner, type) else owner.__name__
        wrapper.__qualname__ = f"{owner.__qualname__}.{name}" if isinstance(owner, type) else name


def _home(owner: Any, name: str, original: Any) -> tuple[tuple[ModuleType, str], ...]:
    """The module that defines a function, where `owner` is another one."""
    if not isinstance(owner, ModuleType) or not isinstance(original, FunctionType):
        return ()
    home, own_name = sys.modules.get(original.__module__ or ""), original.__qualname__
    if home is None or (home is owner and own_name == name) or vars(home).get(own_name) is not original:
        return ()
    return ((home, own_name),)


def _is_found(function: Any) -> bool:
    """Whether its module has it under its name: then that is how it is pickled."""
    at: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for part in function.__qualname__.split("."):
        at = getattr(at, part, None)
    return at is function


def on_unpatch(undo: Callable[[], object]) -> None:
    """Have `unpatch` call `undo`: for what a library has registered, and not replaced."""
    _patches.append(_Lent(undo))


def patch_count() -> int:
    """How many replacements there are."""
    return len(_patches)


def patches() -> list[Patch]:
    """All functions that are replaced, the first first."""
    return [one for one in _patches if isinstance(one, Patch)]


def unpatch(until: int = 0) -> None:
    """Take back what `patch` replaced, the last first, until so many replacements are left."""
    while len(_patches) > until:
        try:
            _patches.pop().undo()
        except Exception as error:  # noqa: BLE001 - the program's object said no; the others are taken back all the same
            warn(f"a replaced function was not taken back: {type(error).__name__}: {error}")


_MOST_KNOWN: Final = 10_000
_user: Final[dict[str, bool]] = {}
"""By file: code of two files is equal when its text is."""


def is_user_code(code: CodeType) -> bool:
    """Whether a function is the user's own, not a library's, the standard library's or ours."""
    file = code.co_filename
    known = _user.get(file)
    if known is None:
        if len(_user) >= _MOST_KNOWN:  # a program that makes code as it goes
            _user.clear()
        known = _user[file] = not (file.startswith((_OURS, _STANDARD)) or any(part in file for part in _LIBRARIES))
    return known


def caller(depth: int) -> FrameType | None:
    """The frame so many callers out from who asks; None where C called from the outside (atexit, a new thread)."""
    try:
        return sys._getframe(depth + 1)
    except ValueError:
        return None


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's own code, from `frame` outward; `frame` itself where there is none."""
    at = frame
    while at is not None and not is_user_code(at.f_code):
        at = at.f_back
    return at or frame
