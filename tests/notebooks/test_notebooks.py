"""The notebooks: they run, stay thin and small, show what they compute now, and carry nothing of any one machine."""

from __future__ import annotations

import ast
import base64
import functools
import importlib
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

import profiler
from tests.notebooks.execution import METADATA, ROOT, executed
from tests.test_project import OF_ONE_MACHINE

FOLDER = ROOT / "notebooks"
NOTEBOOKS = ("ask_a_run", "the_case")
RUNS = sorted((FOLDER / "runs").glob("*.zip"))
each_executed = pytest.mark.parametrize("name", ["ask_a_run", pytest.param("the_case", marks=pytest.mark.slow)])
MOST_BYTES = 200_000
"""Size of one notebook with its outputs."""
MOST_RUN_BYTES = 1_500_000
"""Size of all recorded runs together."""
MOST_LINES = 6
"""Lines of one cell: longer code belongs into the package, where it is tested."""
AGAIN = "execute them again: python -m tests.notebooks.execution notebooks/*.ipynb"


def stored(name: str) -> NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code_cells(notebook: NotebookNode) -> Iterator[NotebookNode]:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], NotebookNode]:
    """Executes a notebook once, in a copy of the folder; a cell that raises fails here, with its traceback."""
    importlib.import_module("matplotlib.font_manager")  # lists the machine's fonts once; a slow one warns meanwhile
    copy = tmp_path_factory.mktemp("checkout") / "notebooks"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    return functools.cache(lambda name: executed(copy / f"{name}.ipynb"))


def said(output: NotebookNode) -> dict[str, Any]:
    """The words and figures of an output without its layout; an image counts as one figure."""
    if output.output_type == "stream":
        return {output.name: output.text.split()}
    assert output.output_type in {"execute_result", "display_data"}, output
    data: dict[str, Any] = {kind: text.split() for kind, text in output.data.items() if kind.startswith("text/")}
    for kind in output.data.keys() - data.keys():
        assert kind == "image/png", f"{kind}: no other output is small and stays readable"
        assert base64.b64decode(output.data[kind]).startswith(b"\x89PNG")
        data[kind] = "a figure"
    return data


def test_these_are_all() -> None:
    assert tuple(sorted(path.stem for path in FOLDER.glob("*.ipynb"))) == NOTEBOOKS


@each_executed
def test_stored_outputs_are_those_of_now(results: Callable[[str], NotebookNode], name: str) -> None:
    before, after = stored(name), results(name)
    assert [cell.execution_count for cell in code_cells(before)] == [*range(1, len([*code_cells(before)]) + 1)], AGAIN
    for old, new in zip(code_cells(before), code_cells(after), strict=True):
        assert [*map(said, old.outputs)] == [*map(said, new.outputs)], f"cell {old.id} of {name}; {AGAIN}"
    assert before.metadata == METADATA, AGAIN


@each_executed
def test_nothing_is_warned_of(results: Callable[[str], NotebookNode], name: str) -> None:
    streams = [out for cell in code_cells(results(name)) for out in cell.outputs if out.output_type == "stream"]
    assert not [out.text for out in streams if out.name == "stderr"]


def test_a_cell_that_raises_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "wrong.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), path)
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        executed(path)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells_are_thin(name: str) -> None:
    for cell in code_cells(stored(name)):
        tree, where = ast.parse(cell.source), f"cell {cell.id} of {name}"
        defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
        assert not [node for node in ast.walk(tree) if isinstance(node, defined)], f"{where} defines something"
        if cell.id != "setup":
            assert len(cell.source.splitlines()) <= MOST_LINES, f"{where} is long"
            assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)], where


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_answer_has_its_question(name: str) -> None:
    cells = stored(name).cells
    assert cells[0].source.startswith("# ")
    for before, cell in pairwise(cells):
        if cell.cell_type == "code" and before.cell_type == "code":
            assert cell.id.startswith(before.id.partition("-")[0]), f"cell {cell.id} of {name} answers no question"


def test_files_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (*FOLDER.glob("*.ipynb"), *RUNS)}
    assert {name: size for name, size in sizes.items() if name.endswith(".ipynb") and size > MOST_BYTES} == {}
    assert sum(size for name, size in sizes.items() if name.endswith(".zip")) <= MOST_RUN_BYTES, sizes


# ---------------------------------------------------------------- the recorded runs


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_recorded_runs_are_whole(path: Path) -> None:
    run = profiler.load(path)
    assert (run.info.state, run.info.exit_code, run.problems) == ("complete", 0, ())
    assert path.stem.endswith(run.info.label)
    assert run.info.level == ("standard" if path.stem.startswith("detail") else "light")
    assert run.info.argv[0] == "python"


def test_every_run_is_explained() -> None:
    text = (FOLDER / "runs" / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w-]+)\.zip`", text))
    assert named == {path.stem for path in RUNS}
    assert named, "no recorded runs at all"


def test_nothing_of_one_machine() -> None:
    """Neither in a notebook nor in the texts of a run, which lie compressed in its archive."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.ipynb")}
    for path in RUNS:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if ".json" in name:
                    texts[f"{path.name}/{name}"] = archive.read(name).decode()
    assert len(texts) > len(NOTEBOOKS) + 3 * len(RUNS)
    found = {name: match.group() for name, text in texts.items() if (match := OF_ONE_MACHINE.search(text))}
    found |= {name: str(ROOT) for name, text in texts.items() if str(ROOT) in text}
    assert not found


def test_the_runs_show_the_case() -> None:
    """The notebook shows that the ratio is far from 1, and that a thousand syncs a step became one."""
    sides = {side: sorted((FOLDER / "runs").glob(f"0*-{side}.zip")) for side in ("as-found", "fixed")}
    comparison = profiler.compare(sides)
    ratio = comparison.ratios["fixed"]["tokens_per_s"]
    assert ratio.n == 5
    assert ratio.low > 10, f"{ratio.value}× ({ratio.low} to {ratio.high})"
    before, after = (side.measures["syncs_per_step"].value for side in comparison.sides)
    assert before > 1000
    assert 1 <= after < 1.1, "one, and now and then one more to read the metrics"


def test_recording_needs_an_environment(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "record-notebook-runs.sh"
    done = subprocess.run([script, str(tmp_path / "python9")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "python9 not found; name the Python of an environment" in done.stderr
