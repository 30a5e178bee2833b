"""Holds the directions of imports between the rooms; ARCHITECTURE.md draws them, tests/layers.py checks them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.layers import Module, cycles, heavy_at_start, read_tree, wrong_directions, wrong_places

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tree() -> dict[str, Module]:
    return read_tree(ROOT)


def test_the_tree_is_read(tree: dict[str, Module]) -> None:
    assert {"profiler", "profiler.marks", "profiler.run.model", "reference_trainer.lm.corpus"} <= tree.keys()
    assert "profiler.agent.recorder" in {imported.target for imported in tree["profiler.marks"].imports}


def test_directions(tree: dict[str, Module]) -> None:
    assert not (faults := wrong_directions(tree)), "\n".join(faults)


def test_third_party_packages_are_in_their_place(tree: dict[str, Module]) -> None:
    assert not (faults := wrong_places(tree)), "\n".join(faults)


def test_heavy_libraries_are_imported_where_used(tree: dict[str, Module]) -> None:
    assert not (faults := heavy_at_start(tree)), "\n".join(faults)


def test_no_import_cycle(tree: dict[str, Module]) -> None:
    assert not (found := cycles(tree)), "\n".join(" <-> ".join(group) for group in found)


NAMES_OF_TRAINERS = re.compile(
    r"reference_trainer|teacher-student|\bas.found\b|\b(batch|parallel)-tokenize\b|batch-recurrence|zero-copy|--list-fixes"
)


def test_the_profiler_names_no_trainer() -> None:
    """Code that only the bundled trainers need lives with them and enters the profiler through entry points."""
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "profiler").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if NAMES_OF_TRAINERS.search(line)
    ]
    assert not lines, "\n".join(lines)


# ---------------------------------------------------------------- the checker itself, on made-up trees


def faults_of(tmp_path: Path, **files: str) -> list[str]:
    """All faults of a tree; a__b is the module a/b.py, the packages around it are made."""
    for name, source in files.items():
        path = tmp_path / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    tree = read_tree(tmp_path)
    groups = [" <-> ".join(group) for group in cycles(tree)]
    return [*wrong_directions(tree), *wrong_places(tree), *heavy_at_start(tree), *groups]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("profiler__commands__run", "from profiler.record import launch\nfrom profiler import __version__"),
        ("profiler__diagnose__rules__sync", "from profiler.analyse.intervals import union"),
        ("profiler__analyse__statistics", "import numpy as np\nimport profiler.run.model, profiler.run.tables"),
        ("profiler__record__collectors__gpu", "def start():\n    import pynvml"),
        ("profiler__report__render__markdown", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import rich"),
        ("reference_trainer__lm__loop", "import torch\nimport numba\nfrom profiler import marks"),
    ],
)
def test_allowed_imports(tmp_path: Path, module: str, source: str) -> None:
    assert faults_of(tmp_path, **{module: source, "profiler__marks": ""}) == []


FAULTS = r"""
profiler/report/sections/idle | from profiler.analyse import blame | idle.py:1 imports profiler.analyse
profiler/report/console | x = 1\nimport profiler.diagnose.rank | console.py:2 imports profiler.diagnose.rank
profiler/analyse/statistics | from profiler.run import store | imports profiler.run.store: profiler.analyse may
profiler/diagnose/rank | from profiler.analyse import statistics | imports profiler.analyse.statistics
profiler/run/load | from profiler.analyse import statistics | profiler.run may import profiler.core
profiler/run/model | import profiler.core | profiler.run.model may import profiler.core.masking
profiler/core/plugins | from profiler.run import model | profiler.core may import nothing of ours
profiler/record/launch | from profiler.commands import run | imports profiler.commands
profiler/record/launch | from ..commands import run | imports profiler.commands
profiler/record/launch | from profiler.run import load | launch.py:1 imports profiler.run
profiler/marks | from profiler.run import store | profiler.marks may import profiler.agent.clocks
profiler/commands/compare | def f():\n    import reference_trainer.lm | compare.py:2 imports reference_trainer
profiler/core/plugins | import_module('reference_trainer.lm') | plugins.py:1 imports reference_trainer
reference_trainer/lm/loop | from profiler.run import tables | reference_trainer may import profiler.marks
reference_trainer/lm/loop | import profiler | loop.py:1 imports profiler: reference_trainer may
profiler/extra/thing | | profiler/extra/thing.py is in no known room
profiler/commands/run | def f():\n    import pynvml | only profiler.record.collectors may
profiler/analyse/statistics | if TYPE_CHECKING:\n    import torch | imports torch: only
profiler/analyse/statistics | def f():\n    import pandas | only profiler.run.frames may
profiler/marks | def f():\n    import numpy | it may import the standard library only
profiler/run/tables | import numpy | it may import the standard library only
profiler/report/render/html | import jinja2 | imports jinja2 at its top
profiler/run/frames | class A:\n    import pandas as pd | imports pandas at its top
profiler/commands/run | if x:\n    import numpy as np | imports numpy at its top
"""
"""Module, its source, and the fault."""


@pytest.mark.parametrize("case", FAULTS.strip().splitlines())
def test_faults(tmp_path: Path, case: str) -> None:
    module, source, expected = (part.strip() for part in case.split("|"))
    others = {"profiler__run__store": "", "profiler__analyse__statistics": "", "profiler__run__tables": ""}
    faults = faults_of(tmp_path, **{**others, module.replace("/", "__"): source.replace("\\n", "\n")})
    assert len(faults) == 1, faults
    assert expected in faults[0]


def test_cycles(tmp_path: Path) -> None:
    faults = faults_of(
        tmp_path,
        profiler__run__a="from profiler.run import b",
        profiler__run__b="def f():\n    from profiler.run.c import g",
        profiler__run__c="import profiler.run.a\nimport profiler.run.d",
        profiler__run__d="",
    )
    assert faults == ["profiler.run.a <-> profiler.run.b <-> profiler.run.c"]
