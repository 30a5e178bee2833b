"""Hooks are installed right after the import of what they watch, and never hurt it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from profiler.agent import installation, patching, recorder
from profiler.agent.installation import HookFinder
from profiler.agent.patching import Hook


class Watching:
    """Notes which modules its hook is given, and patches `function` where there is one."""

    def __init__(self, error: Exception | None = None, *, name: str = "watching", also: str = "part") -> None:
        self.seen: list[str] = []
        self.error = error
        self.hook = Hook(name, dict.fromkeys(("watched_package", f"watched_package.{also}"), self.install), ("light",))

    def install(self, module: ModuleType) -> None:
        self.seen.append(module.__name__)
        if hasattr(module, "function"):
            patching.patch(module, "function", lambda original: lambda: original() + 1)
        if self.error:
            raise self.error


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "watched_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("def function(): return 1\n")
    (folder / "part.py").write_text("import watched_package\nSEEN = watched_package.function()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(installation, "_failures", {})
    before = list(sys.meta_path)
    yield folder
    sys.meta_path[:] = before
    patching.unpatch()
    for name in [name for name in sys.modules if name.startswith("watched_package")]:
        del sys.modules[name]


def watch(*watching: Watching) -> None:
    watcher = HookFinder(each.hook for each in watching)
    sys.meta_path.insert(0, watcher)
    watcher.install_for_loaded_modules()


@pytest.mark.usefixtures("package")
def test_a_hook_is_installed_after_the_import_and_before_anyone_has_the_module() -> None:
    watching = Watching()
    watch(watching)
    part = importlib.import_module("watched_package.part")
    assert watching.seen == ["watched_package", "watched_package.part"]
    assert part.SEEN == 2
    package = sys.modules["watched_package"]
    for module in (package, part):
        assert type(module.__loader__).__name__ == "SourceFileLoader"
        assert "exec_module" not in vars(module.__loader__)
        assert module.__spec__ is not None
        assert module.__spec__.loader is module.__loader__
    assert package.function.__name__ == "function"
    patching.unpatch()
    assert package.function() == 1


@pytest.mark.usefixtures("package")
def test_looking_for_it_installs_nothing_and_what_is_imported_already_gets_it_at_once() -> None:
    watching, late = Watching(), Watching()
    watch(watching)
    assert importlib.util.find_spec("watched_package") is not None
    assert watching.seen == []
    package = importlib.import_module("watched_package")
    assert package.function() == 2
    assert importlib.reload(package).function() == 2, "a reload gets it again"
    watch(late)
    assert late.seen == ["watched_package"]
    assert package.function() == 3


@pytest.mark.usefixtures("package")
def test_a_lazy_import_installs_when_it_is_used() -> None:
    watching = Watching()
    watch(watching)
    spec = importlib.util.find_spec("watched_package")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["watched_package"] = module
    spec.loader.exec_module(module)
    assert watching.seen == []
    assert module.function() == 2
    assert watching.seen == ["watched_package"]


def test_a_library_that_fails_fails_as_ever_and_may_be_tried_again(package: Path) -> None:
    watching = Watching()
    watch(watching)
    (package / "part.py").write_text("raise OSError('once')\n")
    with pytest.raises(OSError, match="once"):
        importlib.import_module("watched_package.part")
    assert "watched_package.part" not in watching.seen
    (package / "part.py").write_text("value = 'a second time'\n")
    importlib.invalidate_caches()
    assert importlib.import_module("watched_package.part").value == "a second time"
    assert watching.seen[-1] == "watched_package.part"


@pytest.mark.usefixtures("package")
def test_a_module_that_is_not_there_is_not_there() -> None:
    watch(Watching(also="missing"))
    with pytest.raises(ModuleNotFoundError, match=r"watched_package\.missing"):
        importlib.import_module("watched_package.missing")


@pytest.mark.usefixtures("package")
def test_a_hook_that_fails_is_taken_back_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recorder.Recorder(tmp_path / "run", "light")
    monkeypatch.setattr(patching.STATE, "recorder", made)
    watch(Watching(name="good"), Watching(RuntimeError("not this\nversion")))
    assert importlib.import_module("watched_package").function() == 2, "one patch of two is left"
    meta = json.loads((made.directory / "source.json").read_text())
    assert meta["hooks"] == {"good": "", "watching": "watched_package: RuntimeError: not this version"}


@pytest.mark.usefixtures("package")
def test_threads_may_import_at_once() -> None:
    watching = Watching()
    watch(watching)
    gate, seen = threading.Barrier(4), []

    def work() -> None:
        gate.wait()
        seen.append(importlib.import_module("watched_package.part").SEEN)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [2] * 4
    assert watching.seen == ["watched_package", "watched_package.part"]


def test_a_hook_that_cannot_be_loaded_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_failures", {})
    made = recorder.Recorder(tmp_path / "run", "light")
    monkeypatch.setattr(patching.STATE, "recorder", made)
    original = importlib.import_module

    def broken(name: str) -> ModuleType:
        if name.endswith(".hooks.optimizers"):
            raise SyntaxError("of another Python")
        return original(name)

    monkeypatch.setattr(importlib, "import_module", broken)
    names = {found.name for found in installation.load_hooks("standard")}
    assert "regions" in names
    assert "optimizers" not in names
    assert made.hook_errors == {"optimizers": "SyntaxError: of another Python"}


@pytest.mark.usefixtures("package")
def test_a_recording_knows_nothing_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    installation._failures["watching"] = "LookupError: of the recording before"
    monkeypatch.setattr(installation, "track_process", lambda: None)
    monkeypatch.setattr(installation, "hide_our_frames", lambda: None)
    monkeypatch.setattr(patching.STATE, "recorder", None)
    installation.install_hooks()
    assert installation._failures == {}
