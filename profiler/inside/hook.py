"""What a hook is, and the one way in which it replaces a function of someone else's: so that it can be taken back."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType, ModuleType
from typing import Any, ClassVar, Final, Protocol

from profiler.inside.recorder import Recorder

_OURS: Final = __file__.rpartition("inside")[0]
_LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "<frozen", "<string>", "<__array_function__")
_STANDARD: Final = (*{path for path in (sys.prefix, sys.base_prefix) if path != "/usr"}, "/usr/lib/python")


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


_patches: Final[list[tuple[Any, str, bool, Any]]] = []


def patch(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Replace `owner.name` by `make(original)`, which keeps the original's name, text and signature.

    :param owner: a module or a class; where a class only inherits `name`, it gets one of its own.
    """
    original = getattr(owner, name)
    own = name in vars(owner)
    wrapper = make(original)
    functools.update_wrapper(wrapper, original)
    _patches.append((owner, name, own, vars(owner).get(name)))
    setattr(owner, name, wrapper)


class _Lent:
    """Stands among the patches for something that a library took from us: taking it back is deleting it."""

    def __init__(self, undo: Callable[[], object]) -> None:
        self._undo = undo

    def __delattr__(self, name: str) -> None:
        self._undo()


def undo_by(undo: Callable[[], object]) -> None:
    """Have `unpatch` call `undo`: for what a library has registered, and not replaced."""
    _patches.append((_Lent(undo), "lent", False, None))


def patched() -> int:
    """How many replacements there are."""
    return len(_patches)


def unpatch(until: int = 0) -> None:
    """Take back what `patch` replaced, the last first, until so many replacements are left."""
    while len(_patches) > until:
        owner, name, own, original = _patches.pop()
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)


_user: Final[dict[CodeType, bool]] = {}


def is_user_code(code: CodeType) -> bool:
    """Whether a function is the user's own, not a library's, the standard library's or ours."""
    known = _user.get(code)
    if known is None:
        file = code.co_filename
        known = _user[code] = not (file.startswith((_OURS, *_STANDARD)) or any(part in file for part in _LIBRARIES))
    return known


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's own code, from `frame` outward; `frame` itself where there is none."""
    at = frame
    while at is not None and not is_user_code(at.f_code):
        at = at.f_back
    return at or frame
