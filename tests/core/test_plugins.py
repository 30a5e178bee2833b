"""Discovery of plug-ins: sorted by name, helpers left out, and one line for what is broken."""

from __future__ import annotations

import itertools
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profiler.__main__ import make_parser
from profiler.core import plugins
from profiler.core.errors import ProfilerError
from profiler.core.plugins import call_plugin, discover, entry_points

_number = itertools.count()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    name = f"plugins_of_test_{next(_number)}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    return name, folder


def plugin(folder: Path, module: str, name: str) -> None:
    (folder / f"{module}.py").write_text(f"class PLUGIN:\n    name = {name!r}\n")


def test_sorted_by_name_and_helpers_left_out(package: tuple[str, Path]) -> None:
    name, folder = package
    plugin(folder, "a", "zebra")
    plugin(folder, "b", "ant")
    (folder / "_helper.py").write_text("raise RuntimeError('a helper is not loaded')")
    assert [found.name for found in discover(name)] == ["ant", "zebra"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "needs a PLUGIN with a name"),
        ("PLUGIN = object()", "needs a PLUGIN with a name"),
        ("import no_such_module_of_ours", "cannot be imported: ModuleNotFoundError"),
        ("def broken(", "cannot be imported: SyntaxError"),
    ],
)
def test_a_broken_plugin_is_named(package: tuple[str, Path], text: str, message: str) -> None:
    name, folder = package
    (folder / "bad.py").write_text(text)
    with pytest.raises(ProfilerError, match=message) as caught:
        discover(name)
    assert f"{name}.bad" in str(caught.value)


def test_a_name_is_taken_once(package: tuple[str, Path]) -> None:
    name, folder = package
    plugin(folder, "a", "same")
    plugin(folder, "b", "same")
    with pytest.raises(ProfilerError, match=r"b: the name 'same' is taken by .*\.a"):
        discover(name)


# ---------------------------------------------------------------- entry points of other packages


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs a distribution with entry points and a module: takes the text of both."""

    def install(points: str, module: str, distribution: str = "other_package-1.0") -> None:
        folder = tmp_path / f"{distribution}.dist-info"
        folder.mkdir()
        (folder / "entry_points.txt").write_text(points)
        (tmp_path / "other_package.py").write_text(module)
        monkeypatch.syspath_prepend(tmp_path)
        sys.modules.pop("other_package", None)
        entry_points.cache_clear()

    yield install
    entry_points.cache_clear()


@pytest.mark.parametrize(
    ("distribution", "is_clone", "ignored"),
    [
        ("training_profiler-0.0.1", True, True),
        ("training-profiler-0.0.1", True, True),
        ("training_profiler-0.0.1", False, False),
        ("training_profiler.extra-1.0", True, False),
        ("training_profiler_extra-1.0", True, False),
    ],
)
def test_a_clone_ignores_an_installed_copy_of_this_project(
    installed: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    distribution: str,
    is_clone: bool,
    ignored: bool,
) -> None:
    if not is_clone:
        monkeypatch.setattr(plugins, "__file__", str(tmp_path / "profiler" / "core" / "plugins.py"))
    points = "[training_profiler.sections]\nremoved = other_package:SECTION\n"
    installed(points, "SECTION = 'of 0.0.1'\n", distribution)
    assert ("removed" in entry_points("sections")) is not ignored


def test_objects_of_other_packages_are_loaded(installed: Callable[..., None]) -> None:
    installed("[training_profiler.sections]\nmine = other_package:SECTION\n", "SECTION = 'mine'\n")
    assert entry_points("sections")["mine"] == "mine"
    assert "ladder" in entry_points("sections"), "those of this checkout stay"


@pytest.mark.parametrize("module", ["raise RuntimeError('a\\nb')", "SECTION = 1 / 0", "import no_such_module", ""])
def test_an_entry_point_that_fails_is_one_line_and_left_out(
    installed: Callable[..., None], capsys: pytest.CaptureFixture[str], module: str
) -> None:
    installed("[training_profiler.sections]\nmine = other_package:SECTION\n", module)
    assert "mine" not in entry_points("sections")
    error = capsys.readouterr().err
    assert error.startswith("profiler: the plug-in mine (other_package:SECTION) failed and is left out: ")
    assert error.count("\n") == 1
    assert entry_points("sections")
    assert not capsys.readouterr().err, "it is reported once"


def test_a_command_that_fails_leaves_the_others(
    installed: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    text = "class COMMAND:\n    name = help = 'mine'\n    run = None\n    def prepare_parser(parser): parser.no()\n"
    installed("[training_profiler.commands]\nmine = other_package:COMMAND\n", text)
    make_parser()
    assert capsys.readouterr().err.startswith("profiler: the plug-in mine (command) failed and is left out: ")


def test_a_plugin_that_is_called_and_fails_gives_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert call_plugin("mine", divmod, 7, 2) == (3, 1)
    assert call_plugin("mine", divmod, 1, 0) is None
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", [None, "[project]\nname = 'other'\n[project.entry-points.\"training_profiler.sections\"]\na = 'b:c'\n", "["]
)
def test_without_a_checkout_no_pyproject_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None
) -> None:
    monkeypatch.setattr(plugins, "__file__", str(tmp_path / "profiler" / "core" / "plugins.py"))
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    entry_points.cache_clear()
    assert entry_points("sections") == {}
    entry_points.cache_clear()


def test_entry_points_of_the_checkout_are_read_as_by_a_toml_parser() -> None:
    """The fast reader of pyproject.toml agrees with a TOML parser."""
    text = (Path(plugins.__file__).parents[2] / "pyproject.toml").read_text()
    for group, table in tomllib.loads(text)["project"]["entry-points"].items():
        if group == "pytest11":  # pytest reads that one by itself
            continue
        assert table == plugins.entries_of(text, group.removeprefix("training_profiler."))
