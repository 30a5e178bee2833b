"""Defines hooks, and replaces functions of other packages so that they can be restored."""

from __future__ import annotations

import dis
import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from profiler.agent.bootstrap import warn
from profiler.agent.recorder import Recorder
from profiler.run.tables import LEVELS

DETAILED: Final = ("standard", "full")
"""The levels at which times and source lines are recorded."""
PACKAGE: Final = __file__.rpartition("agent")[0]
"""Folder of this package, with a slash at its end."""
_LIBRARIES: Final = (
    "/site-packages/",
    "/dist-packages/",
    "<frozen",
    "<string>",
    "<__array_function__",
    "<eval_with_key>",
    "/torchinductor_",
)
_STANDARD: Final = f"{os.path.dirname(os.__file__)}/"  # noqa: PTH120 - as code objects have it; below it, site-packages


_STORES: Final = ("STORE_NAME", "STORE_FAST", "STORE_GLOBAL", "STORE_DEREF")
_LOADS: Final = ("LOAD_NAME", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF")
"""Instructions that give a variable its value, and those that read one."""


class State:
    """The recorder of this process. Hooks read it at each call, since a fork gets a new one."""

    __slots__ = ("recorder",)

    def __init__(self) -> None:
        self.recorder: Recorder | None = None


STATE: Final = State()


@dataclass(frozen=True, slots=True)
class Hook:
    """Records what a program does with one library.

    :param installers: for each module that the hook waits for, the function that gets it right after its import and
        replaces its functions with `patch`. At level light a hook only counts: no times, no sites. An error of an
        installer is reported, and its patches are undone.
    :param levels: the levels at which it is installed.
    :param beside_marks: it is also installed in a program of which only the marks are recorded.
    """

    name: str
    installers: Mapping[str, Callable[[ModuleType], object]]
    levels: tuple[str, ...] = LEVELS
    beside_marks: bool = False

    def install(self, module: ModuleType) -> None:
        """Install it in `module`, which the program has imported or reloaded."""
        self.installers[module.__name__](module)


@dataclass(eq=False, slots=True)
class Patch:
    """One function that is replaced by a wrapper.

    :param inherited: whether `owner` did not define it, but inherited it.
    """

    owner: Any
    name: str
    inherited: bool
    original: Any
    wrapper: Any

    def is_active(self) -> bool:
        """Tell whether nobody has replaced our wrapper since."""
        return vars(self.owner).get(self.name) is self.wrapper

    def undo(self) -> None:
        """Restore the original. A replacement that the program made meanwhile stays, and calls our wrapper."""
        if self.is_active():
            if self.inherited:
                delattr(self.owner, self.name)
            else:
                setattr(self.owner, self.name, self.original)


_undos: Final[list[Patch | Callable[[], object]]] = []
"""Replaced functions, and what takes back other things of ours: callbacks that are registered with a library."""


def patch(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Replace `owner.name` by `make(original)`, which gets the original's name, docstring and signature.

    A function that another module defines is replaced there too, so that both names stay one function. The wrapper's
    `__module__` and `__qualname__` are where it can be found, because it is pickled by them.

    :param owner: a module or a class; a class that inherits `name` gets an attribute of its own.
    """
    original = getattr(owner, name)
    home = _home(owner, name, original)
    wrapper = make(original)
    functools.update_wrapper(wrapper, original)
    unbound = isinstance(owner, type) and isinstance(vars(owner).get(name), (staticmethod, BuiltinFunctionType))
    for target, attribute in ((owner, name), *home):
        replacement = staticmethod(wrapper) if unbound else wrapper
        attributes = vars(target)
        _undos.append(Patch(target, attribute, attribute not in attributes, attributes.get(attribute), replacement))
        setattr(target, attribute, replacement)
    if not _is_importable(wrapper):
        wrapper.__module__ = owner.__module__ if isinstance(owner, type) else owner.__name__
        wrapper.__qualname__ = f"{owner.__qualname__}.{name}" if isinstance(owner, type) else name


def _home(owner: Any, name: str, original: Any) -> tuple[tuple[ModuleType, str], ...]:
    """Return the module that defines a function and its name there, if `owner` is another one."""
    if not isinstance(owner, ModuleType) or not isinstance(original, FunctionType):
        return ()
    home, home_name = sys.modules.get(original.__module__ or ""), original.__qualname__
    if home is None or (home is owner and home_name == name) or vars(home).get(home_name) is not original:
        return ()
    return ((home, home_name),)


def _is_importable(function: Any) -> bool:
    """Tell whether its module has it under its name."""
    value: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for part in function.__qualname__.split("."):
        value = getattr(value, part, None)
    return value is function


def on_unpatch(undo: Callable[[], object]) -> None:
    """Have `unpatch` call `undo`: for callbacks that are registered with a library."""
    _undos.append(undo)


def patch_count() -> int:
    """Return the number of patches and registrations."""
    return len(_undos)


def patches() -> list[Patch]:
    """Return all replaced functions, in the order in which they were replaced."""
    return [patch for patch in _undos if isinstance(patch, Patch)]


def unpatch(until: int = 0) -> None:
    """Undo patches and registrations, the last first, until `until` of them are left."""
    while len(_undos) > until:
        entry = _undos.pop()
        try:
            (entry.undo if isinstance(entry, Patch) else entry)()
        except Exception as error:  # noqa: BLE001 - an object of the program refused; the others are restored all the same
            warn(f"a replaced function could not be restored: {type(error).__name__}: {error}")


_MAX_FILES: Final = 10_000
_user_files: Final[dict[str, bool]] = {}
"""The keys are file names, because code objects of two files are equal if their text is."""


def is_user_code(code: CodeType) -> bool:
    """Tell whether code belongs to the user: not to a library, the standard library or this package."""
    return is_user_file(code.co_filename)


def is_user_file(file: str) -> bool:
    """Return the same for a file of source code."""
    cached = _user_files.get(file)
    if cached is None:
        if len(_user_files) >= _MAX_FILES:  # a program that makes code without end
            _user_files.clear()
        installed = file.startswith((PACKAGE, _STANDARD)) or any(part in file for part in _LIBRARIES)
        cached = _user_files[file] = not installed
    return cached


def is_beneath_libraries(file: str) -> bool:
    """Tell whether a file that is not the user's belongs to torch or to Python itself, or was generated."""
    torch = getattr(sys.modules.get("torch"), "__file__", None) or "torch"
    is_standard = file.startswith(_STANDARD) and "-packages/" not in file
    return is_standard or file.startswith(("<", f"{os.path.dirname(torch)}/")) or "/torchinductor_" in file  # noqa: PTH120


def caller(depth: int) -> FrameType | None:
    """Return the frame `depth` callers out from the caller; None if there is none (atexit, a new thread)."""
    try:
        return sys._getframe(depth + 1)
    except ValueError:
        return None


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the user's code, from `frame` outward; `frame` itself if there is none."""
    current = frame
    while current is not None and not is_user_code(current.f_code):
        current = current.f_back
    return current or frame


def user_line(frame: FrameType | None) -> dict[str, Any] | None:
    """Return the innermost line of the user's code from a frame outward; None where there is none."""
    frame = user_frame(frame)
    return code_line(frame.f_code, frame.f_lineno) if frame is not None and is_user_code(frame.f_code) else None


def code_line(code: CodeType, line: int) -> dict[str, Any]:
    """Return a line of code as facts have it: file, line, function."""
    return {"file": code.co_filename, "line": line, "function": code.co_qualname}


def own_code(function: Any) -> CodeType | None:
    """Return the user's code behind a function, a partial or a callable object; None where a library wrote it."""
    while isinstance(function, functools.partial):
        function = function.func
    # no getattr on the object: its class may answer to any name, or raise
    function = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(function, FunctionType):
        own = (vars(each).get("__call__") for each in type(function).__mro__)
        function = next((each for each in own if isinstance(each, FunctionType)), None)
    return function.__code__ if function is not None and is_user_code(function.__code__) else None


def creation(frame: FrameType | None) -> dict[str, Any]:
    """Return the line of the user's code that made an object, and its variable: file, line, function and variable.

    Empty where a library made it, whose line the user cannot change.

    :param frame: the innermost frame of the object's constructors.
    """
    while frame is not None and not is_user_code(frame.f_code):
        is_ours = frame.f_code.co_filename.startswith(PACKAGE)  # a hook around a constructor
        if not is_ours and frame.f_code.co_name != "__init__":
            break
        frame = frame.f_back
    if frame is None or not is_user_code(frame.f_code):
        return {}
    code = frame.f_code
    return {**code_line(code, frame.f_lineno), "variable": assigned_variable(code, frame.f_lasti)}


def assigned_variable(code: CodeType, instruction: int) -> str:
    """Return the variable or attribute that the result of a call is assigned to, as the program writes it; empty: none.

    Takes 1 ms for 500 lines of code.

    :param instruction: the call; below 0: not known.
    """
    if instruction < 0:
        return ""
    following = (each for each in dis.get_instructions(code) if each.offset > instruction)
    first, second = next(following, None), next(following, None)
    if first is None:
        return ""
    if first.opname in _STORES:
        return str(first.argval)
    if first.opname in _LOADS and second is not None and second.opname == "STORE_ATTR":
        return f"{first.argval}.{second.argval}"
    return ""
