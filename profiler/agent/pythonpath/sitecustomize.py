"""Brings the hooks into every Python of a recorded program, whose PYTHONPATH begins with this folder.

Python imports it at its start. It takes its folder off `sys.path` again (children inherit the environment, and so have
it too) and hands over to the `sitecustomize` that would have been imported without us, if there is one.
"""

import sys


def _start_bootstrap() -> None:
    from _frozen_importlib_external import SourceFileLoader  # loaded already; importlib itself would cost milliseconds

    folder = __file__.rpartition("/")[0]
    while folder in sys.path:
        sys.path.remove(folder)
    sys.path_importer_cache.pop(folder, None)
    name, path = "_training_profiler_bootstrap", folder.rpartition("/")[0] + "/bootstrap.py"
    bootstrap = {"__name__": name, "__file__": path}
    code = SourceFileLoader(name, path).get_code(name)
    assert code is not None  # a source file has one
    exec(code, bootstrap)  # noqa: S102 - our own file
    bootstrap["start"]()  # type: ignore[operator]


try:
    _start_bootstrap()
except Exception as error:  # noqa: BLE001 - the edge to someone's program, which goes on
    print(f"profiler: the hooks were not loaded: {type(error).__name__}: {error}; the program goes on", file=sys.stderr)

sys.modules.pop(__name__, None)
__import__(__name__)  # the next one on the path; where there is none, the error that Python expects
