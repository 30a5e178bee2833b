"""`profiler.record` in a notebook: its kernel has threads and an event loop of its own, and handlers of signals."""

from __future__ import annotations

from pathlib import Path

import pytest

import profiler

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

CELLS = (
    "import signal, profiler\nbefore = [signal.getsignal(number) for number in range(1, 32)]",
    """
with profiler.record("recorded") as run:
    for number in range(5):
        with profiler.region("mine"):
            profiler.step(tokens=number)
    during = [signal.getsignal(number) for number in range(1, 32)]
""",
    "print(len(profiler.load(run).steps), during == before, profiler.load(run).info.state)",
)


@pytest.mark.slow
def test_a_cell_is_recorded(tmp_path: Path) -> None:
    from tests.notebooks.execution import executed

    path = tmp_path / "notebook.ipynb"
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    done = executed(path)
    assert [output["text"] for output in done.cells[-1].outputs] == ["5 True complete\n"]
    assert profiler.load(tmp_path / "recorded").info.label == "recorded"
