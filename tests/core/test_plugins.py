"""Discovery of plug-ins: sorted by name, helpers left out, and one line for what is broken."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from profiler.core.errors import ProfilerError
from profiler.core.plugins import discover

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
