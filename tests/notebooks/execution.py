"""Executes notebooks with this interpreter, each in its own folder: `python -m tests.notebooks.execution FILE...`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
"""For one cell; they take less than a second each."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""The same whoever executes: no version of a kernel, no times."""


class ThisPython(AsyncKernelManager):
    """Starts the interpreter that runs this, not a kernel that happens to be installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        argv = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


def executed(path: Path) -> NotebookNode:
    """The notebook at `path` with the outputs that its cells have now; the file stays as it is.

    :raises CellExecutionError: a cell raised, with its traceback.
    """
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as scratch:
        resources = {"metadata": {"path": str(path.resolve().parent)}}
        client = NotebookClient(
            notebook,
            kernel_manager_class=ThisPython,
            timeout=TIMEOUT_S,
            startup_timeout=TIMEOUT_S,
            iopub_timeout=TIMEOUT_S,  # outputs come by a way of their own; after 4 s they would be left out
            coalesce_streams=True,  # the kernel sends what is printed every 0.2 s: a slow line in pieces
            record_timing=False,
            resources=resources,
        )
        manager = client.create_kernel_manager()
        manager.transport, manager.connection_file = "ipc", str(Path(scratch) / "kernel.json")
        # nothing of the user's own: neither their IPython profile nor their choice of a Matplotlib backend
        environment = {**os.environ, "IPYTHONDIR": scratch, "PYTHONPATH": str(ROOT)}
        environment.pop("MPLBACKEND", None)
        client.execute(env=environment)
    notebook.metadata = nbformat.from_dict(METADATA)
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:]:
        result = executed(Path(name))
        nbformat.write(result, name)
        print(f"executed {name}: {Path(name).stat().st_size / 1000:.0f} kB")
