"""Loads this package into a recorded program, under another name, when the program first imports torch.

pythonpath/sitecustomize.py runs it at the start of every Python, so it must cost next to nothing: a process that never
imports torch loads no other module of ours, and gets no folder in the run directory.

The program may have modules with the names of ours. Ours are therefore loaded as `_training_profiler.*`, and
`import profiler...` in one of them imports from there.
"""

from __future__ import annotations

import builtins
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import SourceFileLoader, spec_from_file_location

TYPE_CHECKING = False  # typing is not loaded yet, and takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Any

PRIVATE = "_training_profiler"
FIRST = "torch"
"""The module whose import loads the hooks: a program that does not import it trains nothing."""
# as in profiler.run.tables, which is not loaded here
ENV_RUN = "PROFILER_RUN_DIR"
ENV_RECORDER = "PROFILER_RECORDER_PID"
HOOKED = "hooked"
RELEASED = "released"

_PTRACE_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
_PR_SET_PTRACER = 0x59616D61  # prctl(2): the process that may trace us under Yama
_ALLOWED = "_training_profiler_traced_by"  # in sys: this module is loaded twice
_OURS = "profiler"
_import = builtins.__import__


def _import_ours(
    name: str,
    globals: Mapping[str, object] | None = None,  # noqa: A002 - the names that Python gives them
    locals: Mapping[str, object] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    if name == _OURS or name.startswith(_OURS + "."):
        name = PRIVATE + name[len(_OURS) :]
    return _import(name, globals, locals, fromlist or (), level)


class _Loader(SourceFileLoader):
    """Loads one of our modules, with an `import` that finds the others."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import_ours}
        super().exec_module(module)


class _Finder:
    """The finder in sys.meta_path that waits for torch and then for the modules of hooks, and finds our own modules.

    It is the only finder of ours there, from the start: a program may restore sys.meta_path after importing torch.
    """

    def __init__(self) -> None:
        self.folder = __file__.rpartition("/agent/")[0]
        self.begun = False
        self.hooks: Any = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == FIRST and not self.begun:  # begin when it is imported, not when its spec is looked up
            return find_behind(self, name, path, target, before=self._begin, after=self._end)
        if name.startswith(PRIVATE):
            return self._find_ours(name)
        return self.hooks.find_spec(name, path, target) if self.hooks is not None else None

    def _begin(self) -> None:
        if self.begun:
            return
        self.begun = True
        try:
            installation = _import(f"{PRIVATE}.agent.installation", fromlist=("install_hooks",))
            self.hooks = installation.install_hooks(self)
            report_hooked(FIRST)
        except Exception as error:  # noqa: BLE001 - the edge to someone's program, which goes on
            warn(f"the hooks were not loaded: {type(error).__name__}: {error}; the program goes on")

    def _end(self, torch: ModuleType) -> None:
        if self.hooks is not None:
            self.hooks.loaded(torch)

    def _find_ours(self, name: str) -> ModuleSpec | None:
        base = self.folder + name[len(PRIVATE) :].replace(".", "/")
        if name == PRIVATE:  # without its __init__, which is for people who import the package
            package = ModuleSpec(name, None, is_package=True)
            package.submodule_search_locations = [base]
            return package
        if os.path.isdir(base):  # noqa: PTH112 - pathlib costs more than all of this
            return spec_from_file_location(
                name,
                base + "/__init__.py",
                loader=_Loader(name, base + "/__init__.py"),
                submodule_search_locations=[base],
            )
        if os.path.isfile(base + ".py"):  # noqa: PTH113
            return spec_from_file_location(name, base + ".py", loader=_Loader(name, base + ".py"))
        return None


def find_behind(
    finder: object,
    name: str,
    path: Sequence[str] | None,
    target: ModuleType | None,
    *,
    after: Callable[[ModuleType], object],
    before: Callable[[], None] | None = None,
) -> ModuleSpec | None:
    """Find a module by the finders behind `finder` in sys.meta_path, and observe its execution.

    :param before: called before the module is executed.
    :param after: called with the module after it.
    """
    finders = iter(tuple(sys.meta_path))
    for candidate in finders:
        if candidate is finder:
            break
    for candidate in finders:
        find = getattr(candidate, "find_spec", None)
        spec: ModuleSpec | None = find(name, path, target) if find else None
        if spec is not None:
            _observe(spec.loader, before, after)
            return spec
    return None


def _observe(loader: Any, before: Callable[[], None] | None, after: Callable[[ModuleType], object]) -> None:
    """Call `before` and `after` around the next execution by `loader`.

    It keeps its type, which libraries inspect: only this one object gets another `exec_module`.
    """
    if not hasattr(loader, "exec_module") or "exec_module" in getattr(loader, "__dict__", {"exec_module": None}):
        return
    original = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        loader.__dict__.pop("exec_module", None)
        if before is not None:
            before()
        original(module)
        after(module)

    # Python leaves frames of importlib out of the traceback of a failed import: ours pretend to be among them
    exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap>")
    loader.exec_module = exec_module


def warn(line: str) -> None:
    """Print a line to standard error, if that is open; print would write to standard output otherwise."""
    if sys.stderr is not None:
        try:
            print("profiler: " + line, file=sys.stderr)
        except (OSError, ValueError):  # its reader has gone
            return


def report_hooked(what: str) -> None:
    """Append to a file of the run directory that hooks are in this process: `python`, and later `torch`."""
    try:
        descriptor = os.open(f"{os.environ[ENV_RUN]}/{HOOKED}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError:  # the run directory is gone, which its recorder reports
        return
    try:
        os.write(descriptor, f"{what} {os.getpid()}\n".encode())
    except OSError:
        return
    finally:
        os.close(descriptor)


def allow_tracing() -> None:
    """Let the recorder read our stacks if Yama restricts ptrace to descendants.

    The recorder need not be our parent: a shell or a launcher may be in between. This is done once a process, since a
    later permission of the program itself (MPI permits everybody) must stay; a fork does not inherit it.
    """
    tracer = os.environ.get(ENV_RECORDER, "")
    permission = os.getpid(), tracer
    if sys.__dict__.get(_ALLOWED) == permission:
        return
    setattr(sys, _ALLOWED, permission)
    if not sys.platform.startswith("linux"):
        return
    try:
        with open(_PTRACE_SCOPE, "rb") as file:
            if file.read(1) != b"1":
                return
    except FileNotFoundError:  # no Yama
        return
    except OSError:  # not readable: Yama may be active
        pass
    import ctypes  # some ms: only where it is needed

    pid = int(tracer) if tracer.isdecimal() else os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def start() -> None:
    """Wait for the import of torch, if this process is recorded."""
    run = os.environ.get(ENV_RUN)
    if not run or os.path.exists(f"{run}/{RELEASED}"):  # noqa: PTH110 - pathlib costs more than all of this
        return
    sys.meta_path.insert(0, _Finder())
    report_hooked("python")
    allow_tracing()
