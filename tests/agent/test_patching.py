"""Replaced functions: one under all its names, and taken back only where ours is still in place."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from profiler.agent import patching
from profiler.agent.patching import own_code


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """A module that defines `work`, and one that has it too."""
    home, other = ModuleType("the_home"), ModuleType("the_other")
    for module in (home, other):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("def work(): return 1\nclass Base:\n    def ask(self): return 1\nclass Heir(Base): pass\n", vars(home))
    vars(other)["work"] = vars(home)["work"]
    already = patching.patch_count()
    yield home, other
    patching.unpatch(already)


def one_more(original: Callable[..., int]) -> Callable[..., int]:
    return lambda *args: original(*args) + 1


def test_both_names_have_one_wrapper(modules: tuple[Any, Any]) -> None:
    home, other = modules
    patching.patch(other, "work", one_more)
    assert other.work is home.work
    assert other.work() == 2, "wrapped once"
    assert (other.work.__module__, other.work.__qualname__) == ("the_home", "work"), "as the original"
    patching.unpatch(patching.patch_count() - 2)
    assert other.work is home.work
    assert other.work() == 1


def test_what_the_program_put_over_ours_stays(modules: tuple[Any, Any]) -> None:
    home, _ = modules
    before = patching.patch_count()
    patching.patch(home, "work", one_more)
    patching.patch(home.Heir, "ask", one_more)
    ours = home.work
    home.work = lambda: ours() * 10
    patching.unpatch(before)
    assert home.work() == 20, "the program's own, by way of ours"
    assert home.Heir().ask() == 1
    assert "ask" not in vars(home.Heir)


def test_what_the_program_took_away_or_cannot_be_undone_keeps_no_other(
    modules: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise LookupError("gone")

    home, _ = modules
    before = patching.patch_count()
    patching.patch(home, "work", one_more)
    patching.patch(home.Heir, "ask", one_more)
    patching.on_unpatch(fails)
    del home.Heir.ask
    patching.unpatch(before)
    assert (home.Heir().ask(), home.work()) == (1, 1)
    assert "LookupError: gone" in capsys.readouterr().err


STANDARD = str(Path(os.__file__).parent)


def code_of(file: str) -> Any:
    return compile("0", file, "exec")


@pytest.mark.parametrize(
    ("file", "users"),
    [
        (sys.prefix + "-projects/train.py", True),
        (sys.prefix + "/projects/train.py", True),
        (STANDARD + "/json/decoder.py", False),
        (STANDARD + "/site-packages/torch/nn/modules/module.py", False),
        (sys.prefix + "/lib/python3/dist-packages/numpy/core.py", False),
        (patching.__file__, False),
        ("<frozen importlib._bootstrap>", False),
        ("/somewhere/train.py", True),
    ],
)
def test_whose_code_it_is(file: str, users: bool) -> None:
    assert patching.is_user_code(code_of(file)) is users


def test_not_all_code_of_a_program_that_makes_it_as_it_goes_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patching, "_MAX_FILES", 5)
    for number in range(20):
        patching.is_user_code(code_of(f"/somewhere/made{number}.py"))
    assert len(patching._user_files) <= 5


class AnswersNothing:
    """A callable object that raises for each attribute that it does not have."""

    def __getattr__(self, name: str) -> object:
        raise KeyError(name)

    def __call__(self, rows: list[int]) -> list[int]:
        return rows


def test_the_code_of_a_callable_is_found_without_asking_it() -> None:
    def collate(rows: list[int]) -> list[int]:
        return rows

    assert own_code(collate) is collate.__code__
    assert own_code(functools.partial(functools.partial(collate))) is collate.__code__
    assert own_code(AnswersNothing()) is AnswersNothing.__call__.__code__
    assert own_code(AnswersNothing().__call__) is AnswersNothing.__call__.__code__
    assert own_code(len) is None
    assert own_code(None) is None
