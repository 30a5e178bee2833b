"""Brings our package into a recorded program under a name of its own, at the moment at which it imports torch.

Run by site/sitecustomize.py at the start of every Python, so it costs next to nothing: no other module of ours is
loaded, and no folder is made, in a process that never imports torch.

The program may have modules named like ours. Ours are therefore loaded as `_training_profiler.*`, and an
`import profiler...` that one of them makes is answered with its namesake there.
"""

from __future__ import annotations

import builtins
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import SourceFileLoader, spec_from_file_location

TYPE_CHECKING = False  # typing is not loaded yet, and takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType
    from typing import Any, Protocol

    class HookFinder(Protocol):
        """Answers for the modules that hooks wait for."""

        def find_spec(
            self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
        ) -> ModuleSpec | None: ...

        def loaded(self, module: ModuleType) -> None: ...


PRIVATE = "_training_profiler"
FIRST = "torch"
"""Only a program that imports it is trained with it: its import brings the hooks in."""
# as in profiler.run.tables, which is not loaded here
ENV_RUN = "PROFILER_RUN_DIR"
ENV_RECORDER = "PROFILER_RECORDER_PID"
HOOKED = "hooked"

_PTRACE_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
_PR_SET_PTRACER = 0x59616D61  # prctl(2): the process that may trace us under Yama
_ALLOWED = "_training_profiler_traced_by"  # in sys: this module is loaded twice
_OURS = "profiler"
_TRIMMED = "<frozen importlib._bootstrap>"  # as in imports: its frames are left out of the traceback of an import
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
    """Loads one of our modules, with an `import` that knows ours."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import_ours}
        super().exec_module(module)


class _Finder:
    """In sys.meta_path: waits for torch, then for what the hooks wait for, and finds our own modules."""

    def __init__(self) -> None:
        self.folder = __file__.rpartition("/agent/")[0]
        self.watcher: HookFinder | None = None
        self.begun = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == FIRST and not self.begun:
            return self._first(name, path, target)
        if name.startswith(PRIVATE):
            return self._ours(name)
        return self.watcher.find_spec(name, path, target) if self.watcher else None

    def _first(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """As those behind us find it, with a loader that begins: who only asks whether it is there does not."""
        finders = iter(tuple(sys.meta_path))
        for finder in finders:
            if finder is self:
                break
        for finder in finders:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        """The loader keeps its type, which libraries look at: only this one object gets another `exec_module`."""
        loader: Any = spec.loader
        if not hasattr(loader, "exec_module") or not hasattr(loader, "__dict__"):
            return
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            self._begin()
            original(module)
            if self.watcher is not None:
                self.watcher.loaded(module)

        exec_module.__code__ = exec_module.__code__.replace(co_filename=_TRIMMED)
        loader.exec_module = exec_module

    def _begin(self) -> None:
        if self.begun:
            return
        self.begun = True
        try:
            installation = _import(f"{PRIVATE}.agent.installation", fromlist=("install_hooks",))
            self.watcher = installation.install_hooks(self)
            report_hooked(FIRST)
        except Exception as error:  # noqa: BLE001 - the edge to someone's program, which goes on
            warn(f"hooks did not come in: {type(error).__name__}: {error}; the program goes on")

    def _ours(self, name: str) -> ModuleSpec | None:
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


def warn(line: str) -> None:
    """To whoever watches the program; nothing where its standard error is closed (print would take its output then)."""
    if sys.stderr is not None:
        try:
            print("profiler: " + line, file=sys.stderr)
        except (OSError, ValueError):  # nobody reads it any more
            return


def report_hooked(what: str) -> None:
    """Tell the recorder that a process has us (`python`), or has torch too: a line in a file of the run directory."""
    try:
        descriptor = os.open(f"{os.environ[ENV_RUN]}/{HOOKED}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError:  # the run directory is gone: its recorder says so, not we
        return
    try:
        os.write(descriptor, f"{what} {os.getpid()}\n".encode())
    except OSError:
        return
    finally:
        os.close(descriptor)


def allow_tracing() -> None:
    """Let the recorder read our stacks where Yama restricts ptrace to descendants; elsewhere there is nothing to do.

    The recorder need not be our parent: a shell or a launcher may stand between. Once a process: whom the program has
    let in since (MPI lets in everybody) stays; a fork has let in nobody.
    """
    tracer = os.environ.get(ENV_RECORDER, "")
    asked = os.getpid(), tracer
    if sys.__dict__.get(_ALLOWED) == asked:
        return
    setattr(sys, _ALLOWED, asked)
    if not sys.platform.startswith("linux"):
        return
    try:
        with open(_PTRACE_SCOPE, "rb") as file:
            if file.read(1) != b"1":
                return
    except FileNotFoundError:  # no Yama
        return
    except OSError:  # hidden from us: it may be there
        pass
    import ctypes  # some ms: only where it must be

    pid = int(tracer) if tracer.isdecimal() else os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def start() -> None:
    """Begin to wait for torch, if this process is recorded."""
    if not os.environ.get(ENV_RUN):
        return
    sys.meta_path.insert(0, _Finder())
    report_hooked("python")
    allow_tracing()
