"""The notebook runs, stays thin and small, shows what it computes now, and carries nothing of any one machine."""

from __future__ import annotations

import ast
import base64
import importlib
import re
import shutil
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

import profiler
from profiler.run.source import dtype_of
from tests.notebooks.execution import METADATA, ROOT, executed
from tests.notebooks.recording import PAIRS, keep_measured_steps, leave_out_paths
from tests.test_project import OF_ONE_MACHINE

FOLDER = ROOT / "notebooks"
NOTEBOOK = FOLDER / "the_case.ipynb"
RUNS = sorted((FOLDER / "runs").glob("*.zip"))
MOST_BYTES = 1_500_000
"""Size of the folder: of the notebook with its pictures, and of the recorded runs."""
MOST_LINES = 20
"""Lines of one cell: longer code belongs into the package, where it is tested."""
AGAIN = "execute it again: python -m tests.notebooks.execution notebooks/the_case.ipynb"


def stored() -> NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def code_cells(notebook: NotebookNode) -> Iterator[NotebookNode]:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> NotebookNode:
    """The notebook, executed in a copy of the folder; a cell that raises fails here, with its traceback."""
    importlib.import_module("matplotlib.font_manager")  # lists the machine's fonts once; a slow one warns meanwhile
    copy = tmp_path_factory.mktemp("checkout") / "notebooks"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    return executed(copy / NOTEBOOK.name)


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


def test_there_is_one_notebook() -> None:
    assert [*FOLDER.glob("*.ipynb")] == [NOTEBOOK]


def test_stored_outputs_are_those_of_now(result: NotebookNode) -> None:
    before = stored()
    assert [cell.execution_count for cell in code_cells(before)] == [*range(1, len([*code_cells(before)]) + 1)], AGAIN
    for old, new in zip(code_cells(before), code_cells(result), strict=True):
        assert [*map(said, old.outputs)] == [*map(said, new.outputs)], f"cell {old.id}; {AGAIN}"
    assert before.metadata == METADATA, AGAIN


def test_nothing_is_warned_of(result: NotebookNode) -> None:
    streams = [out for cell in code_cells(result) for out in cell.outputs if out.output_type == "stream"]
    assert not [out.text for out in streams if out.name == "stderr"]


def test_a_cell_that_raises_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "wrong.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), path)
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        executed(path)


def test_cells_are_thin() -> None:
    for cell in code_cells(stored()):
        tree = ast.parse(cell.source)
        defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
        assert not [node for node in ast.walk(tree) if isinstance(node, defined)], f"cell {cell.id} defines something"
        if cell.id != "setup":
            assert len(cell.source.splitlines()) <= MOST_LINES, f"cell {cell.id} is long"
            assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)], cell.id


def test_every_answer_has_its_question() -> None:
    cells = stored().cells
    assert cells[0].source.startswith("# ")
    for before, cell in pairwise(cells):
        if cell.cell_type == "code" and before.cell_type == "code":
            assert cell.id.startswith(before.id.partition("-")[0]), f"cell {cell.id} answers no question"


def test_files_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (NOTEBOOK, *RUNS)}
    assert sum(sizes.values()) <= MOST_BYTES, sizes


# ---------------------------------------------------------------- the recorded runs


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_recorded_runs_are_whole(path: Path) -> None:
    run = profiler.load(path)
    assert (run.info.state, run.info.exit_code) == ("complete", 0)
    assert {problem.code for problem in run.problems} <= {"collector-failed"}, "a short run may end before the first stack"
    assert path.stem.endswith(run.info.label)
    assert run.info.level == ("standard" if path.stem.startswith("detail") else "light")
    assert run.info.argv[0] == "python"


def test_every_run_is_explained() -> None:
    text = (FOLDER / "runs" / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w-]+)\.zip`", text))
    assert named == {path.stem for path in RUNS}
    assert named, "no recorded runs at all"


def test_nothing_of_one_machine() -> None:
    """Neither in the notebook nor in the texts of a run, which lie compressed in its archive."""
    texts = {NOTEBOOK.name: NOTEBOOK.read_text(encoding="utf-8")}
    for path in RUNS:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if ".json" in name:
                    texts[f"{path.name}/{name}"] = archive.read(name).decode()
    assert len(texts) > 3 * len(RUNS)
    found = {name: match.group() for name, text in texts.items() if (match := OF_ONE_MACHINE.search(text))}
    found |= {name: str(ROOT) for name, text in texts.items() if str(ROOT) in text}
    assert not found


def test_the_runs_show_the_case() -> None:
    """The fixed loop is faster, and two syncs per token became one per chunk."""
    sides = {side: sorted((FOLDER / "runs").glob(f"*-{side}.zip")) for side in ("as-found", "fixed")}
    comparison = profiler.compare(sides)
    ratio = comparison.ratios["fixed"]["tokens_per_s"]
    assert (ratio.n, ratio.different) == (PAIRS, True)
    assert ratio.known is not None
    assert ratio.known > 1
    before, after = (side.measures["syncs_per_step"].value for side in comparison.sides)
    assert before == 6000
    assert 1 <= after < 1.1, "one, and now and then one more to read the metrics"
    assert all(result.are_same for result in comparison.results)


def test_a_recording_keeps_the_measured_steps(tmp_path: Path) -> None:
    steps = np.zeros(3, dtype_of("steps", loaded=False))
    steps["begin"], steps["end"], steps["warmup"] = [0, 10, 20], [10, 20, 30], [True, False, False]
    calls = np.zeros(5, dtype_of("calls", loaded=False))
    calls["begin"] = [5, 10, 19, 25, 31]
    steps.tofile(tmp_path / "steps.bin")
    calls.tofile(tmp_path / "calls.bin")
    keep_measured_steps(tmp_path)
    assert np.fromfile(tmp_path / "calls.bin", calls.dtype)["begin"].tolist() == [10, 19, 25]


def test_a_recording_keeps_no_folder_of_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(f'["{ROOT}", "{ROOT}/reference_trainer/lm/as_found.py"]')
    leave_out_paths(path)
    assert path.read_text() == '[".", "reference_trainer/lm/as_found.py"]'
    path.write_text(f'["{Path.home()}/data"]')
    with pytest.raises(ValueError, match="run.json still names a folder of this machine"):
        leave_out_paths(path)
