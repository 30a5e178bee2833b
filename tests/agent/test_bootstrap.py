"""The hooks come into a program without its noticing; a fake torch of one line brings them in at once."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from profiler.agent import bootstrap
from profiler.record.launch import record
from profiler.record.target import SITE, target_environment
from profiler.run import tables
from profiler.run.load import load
from profiler.run.model import CollectorStatus, RunSpec
from tests.fakes import programs
from tests.fakes.programs import FORKING, script

PYTHON = sys.executable
NAMED_LIKE_OURS = ("profiler", "units", "store", "run", "marks", "recorder", "bootstrap")

PROGRAM = f"""
import os, sys, json
import torch
import {", ".join(NAMED_LIKE_OURS)}
try:
    import sitecustomize
    site = [sitecustomize.__file__, sitecustomize.__name__, sitecustomize.__spec__.origin]
except Exception as error:
    site = repr(error)
print(json.dumps(dict(
    path=sys.path, argv=sys.argv, flags=str(sys.flags), main=__name__, file=__file__, site=site, warn=sys.warnoptions,
    mine=[{", ".join(f"{name}.MINE" for name in NAMED_LIKE_OURS)}], torch=torch.__file__,
    loader=type(torch.__loader__).__name__, spec=type(torch.__spec__.loader).__name__,
    builtins=len(dir(__builtins__)), cwd=os.getcwd(),
    ours=sorted(name for name in sys.modules if name.split(".")[0] in {NAMED_LIKE_OURS!r}),
    cached="SITE" in sys.path_importer_cache,
)))
sys.stderr.write("to stderr\\n")
def main():
    raise ValueError("as ever")
main()
""".replace("SITE", SITE)


def spec(folder: Path, *argv: str, level: str = "light", hooks: bool = True) -> RunSpec:
    return programs.spec(folder, *argv, level=level, hooks=hooks, collectors=())


def bare(*argv: str, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = programs.finished(argv, cwd=Path.cwd(), env={**os.environ, **(environment or {})})
    return done.returncode, done.stdout, done.stderr


def recorded(folder: Path, *argv: str, level: str = "light") -> tuple[int, str, str]:
    """Run a program as the recorder starts it, with both streams captured separately."""
    (folder / "run").mkdir(exist_ok=True)
    return bare(*argv, environment=target_environment(spec(folder, *argv, level=level)))


def hooks_status(folder: Path) -> CollectorStatus:
    return next(status for status in load(folder / "run").info.collectors if status.name == "hooks")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a program beside modules that are named like ours, and a fake torch."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    home = tmp_path / "home"
    home.mkdir()
    for name in NAMED_LIKE_OURS:
        (home / f"{name}.py").write_text(f"MINE = {name!r}\n")
    (home / "torch").mkdir()
    (home / "torch" / "__init__.py").write_text("__version__ = '0'\n")
    return home


def test_constants_that_are_defined_twice_are_equal() -> None:
    """bootstrap.py loads no other module of ours."""
    for name in ("ENV_RUN", "ENV_RECORDER", "HOOKED"):
        assert getattr(bootstrap, name) == getattr(tables, name)


@pytest.mark.parametrize(
    ("level", "own_site"),
    [("light", ""), ("standard", "VALUE = 1\n"), ("light", "raise RuntimeError('in my sitecustomize')\n")],
)
def test_a_program_does_not_notice(
    folder: Path, tmp_path: Path, level: str, own_site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script(folder, PROGRAM)
    if own_site:
        (tmp_path / "site").mkdir()
        script(tmp_path / "site", own_site, "sitecustomize.py")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    argv = (PYTHON, str(path), "--lr", "0.1")
    before, after = bare(*argv), recorded(tmp_path, *argv, level=level)
    assert after == before
    assert before[0] == 1
    assert json.loads(before[1])["mine"] == list(NAMED_LIKE_OURS)
    assert "ValueError: as ever" in before[2]
    assert ("RuntimeError: in my sitecustomize" in before[2]) == own_site.startswith("raise")
    said = (tmp_path / "run" / tables.HOOKED).read_text().split()
    assert said[0::2] == ["python", "torch"], "and yet the hooks were in"


def test_an_import_error_of_a_watched_library_has_the_traceback_that_it_has(folder: Path, tmp_path: Path) -> None:
    (folder / "torch" / "__init__.py").write_text("import no_such_module\n")
    for code in ("import torch", "try:\n    import torch\nexcept ImportError: pass\nimport torch"):
        argv = (PYTHON, str(script(folder, code)))
        assert recorded(tmp_path, *argv) == bare(*argv)
    (folder / "torch" / "__init__.py").write_text("1 / 0\n")
    assert recorded(tmp_path, *argv) == bare(*argv)


def test_finding_the_spec_of_torch_is_not_importing_it(tmp_path: Path, folder: Path) -> None:
    code = """
import sys
from importlib.util import find_spec
assert find_spec("torch") is not None
print(any(name.startswith("_training_profiler") for name in sys.modules))
import torch
print(any(name.startswith("_training_profiler") for name in sys.modules), type(torch.__loader__).__name__)
print("exec_module" in vars(torch.__loader__))
"""
    record(spec(tmp_path, PYTHON, str(script(folder, code))))
    assert (tmp_path / "run" / "output.log").read_text().split() == ["False", "True", "SourceFileLoader", "False"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("saved = sys.meta_path[:]", "sys.meta_path[:] = saved"),
        ("saved, sys.meta_path = sys.meta_path, sys.meta_path[:]", "sys.meta_path = saved"),
    ],
    ids=["restored", "another list meanwhile"],
)
def test_later_libraries_get_hooks_though_the_program_restores_the_finders(
    tmp_path: Path, folder: Path, before: str, after: str
) -> None:
    (folder / "safetensors").mkdir()
    (folder / "safetensors" / "__init__.py").touch()
    (folder / "safetensors" / "torch.py").write_text("def save_file(): pass\n")
    code = f"import sys\n{before}\nimport torch\n{after}\nimport safetensors.torch as library\n"
    path = script(folder, code + "print(hasattr(library.save_file, '__wrapped__'), len(sys.meta_path) - len(saved))\n")
    record(spec(tmp_path, PYTHON, str(path), level="standard"))
    assert (tmp_path / "run" / "output.log").read_text() == "True 0\n"


def test_without_torch_there_is_no_folder(tmp_path: Path) -> None:
    assert record(spec(tmp_path, PYTHON, "-c", "import json")).exit_code == 0
    assert not [*(tmp_path / "run").glob("source-*")]
    status = hooks_status(tmp_path)
    assert (status.state, status.reason) == ("ok", "0 of 1 Python processes imported torch")
    assert (status.code, status.values) == ("hooks-loaded", {"python": 1, "torch": 0})


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        *[((PYTHON, flags, "-c", "pass"), {"flag": flags[1]}) for flags in ("-I", "-E", "-S")],
        ((PYTHON, "-uIB", "-c", "pass"), {"flag": "I"}),
        (("true",), {}),
    ],
)
def test_the_run_reports_why_hooks_were_not_loaded(
    tmp_path: Path, argv: tuple[str, ...], values: dict[str, str]
) -> None:
    assert record(spec(tmp_path, *argv)).exit_code == 0
    status = hooks_status(tmp_path)
    assert (status.state, status.code, status.values) == ("unavailable", "hooks-not-loaded", values)


def test_a_spec_without_hooks_gets_none(folder: Path, tmp_path: Path) -> None:
    record(spec(tmp_path, PYTHON, str(script(folder, "import torch")), hooks=False))
    assert not (tmp_path / "run" / tables.HOOKED).exists()
    assert hooks_status(tmp_path).state == "off"


def test_a_recorder_within_a_recorder_has_us_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = target_environment(spec(tmp_path, "python"))
    monkeypatch.setattr(os, "environ", first)
    assert target_environment(spec(tmp_path, "python"))["PYTHONPATH"] == first["PYTHONPATH"]
    outside = target_environment(spec(tmp_path, "python", hooks=False))
    assert SITE not in outside.get("PYTHONPATH", "").split(os.pathsep)
    assert tables.ENV_HOOKS not in outside


def test_a_boot_that_fails_is_one_line(folder: Path, tmp_path: Path) -> None:
    """A copy of our package of which a part is missing."""
    import shutil

    ours = Path(SITE).parents[1]
    for part in ("agent", "run", "core"):
        shutil.copytree(ours / part, tmp_path / "profiler" / part, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "profiler" / "run" / "tables.py").unlink()
    environment = target_environment(spec(tmp_path, PYTHON))
    environment["PYTHONPATH"] = str(tmp_path / "profiler" / "agent" / "pythonpath")
    (tmp_path / "run").mkdir()
    code, out, error = bare(PYTHON, str(script(folder, "import torch; print('on')")), environment=environment)
    assert (code, out) == (0, "on\n")
    assert error.startswith("profiler: the hooks were not loaded: ")
    assert error.count("\n") == 1
    (tmp_path / "profiler" / "agent" / "bootstrap.py").write_text("1 / 0")
    code, out, error = bare(PYTHON, "-c", "print('on')", environment=environment)
    assert (code, out) == (0, "on\n")
    assert error == "profiler: the hooks were not loaded: ZeroDivisionError: division by zero; the program goes on\n"


CHILDREN = """
import multiprocessing, os, subprocess, sys
import torch

def work():
    pass

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        process = multiprocessing.get_context(method).Process(target=work)
        process.start()
        process.join()
        assert process.exitcode == 0
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
"""


def test_children_have_them_too(folder: Path, tmp_path: Path) -> None:
    assert record(spec(tmp_path, PYTHON, str(script(folder, CHILDREN)))).exit_code == 0
    lines = (tmp_path / "run" / tables.HOOKED).read_text().split("\n")
    with_torch = [line for line in lines if line.startswith("torch ")]
    assert len(with_torch) >= 4, lines  # the program, its spawned child, forkserver's child, the other program
    assert len(set(with_torch)) == len(with_torch)


ENDS = """
import os, sys
sys.path.insert(0, ROOT)
import torch
recorder = sys._training_profiler_recorder
for _ in range(3):
    recorder.record_boundary(0, "SGD")
if sys.argv[1] == "fork":
    child = os.fork()
    recorder = sys._training_profiler_recorder
    recorder.record_boundary(0, "SGD")
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
exec(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("how", "end", "code", "boundaries"),
    [
        ("", "pass", 0, [3]),
        ("", "sys.exit(3)", 3, [3]),
        ("", "os._exit(4)", 4, [3]),
        ("", "raise ValueError", 1, [3]),
        ("fork", "pass", 0, [1, 4]),
    ],
)
def test_nothing_is_lost_however_it_ends(
    folder: Path, tmp_path: Path, how: str, end: str, code: int, boundaries: list[int]
) -> None:
    path = script(folder, ENDS.replace("ROOT", "'/nowhere'"))
    assert record(spec(tmp_path, PYTHON, str(path), how, end)).exit_code == code
    run = load(tmp_path / "run")
    pids = run.boundaries["pid"].tolist()
    assert sorted(pids.count(pid) for pid in set(pids)) == boundaries
    assert [problem for problem in run.problems if "hook" not in problem.values.get("name", "")] == []


@pytest.mark.usefixtures("importable")
def test_marks_and_hooks_share_a_recorder(tmp_path: Path) -> None:
    (tmp_path / "torch.py").touch()
    code = FORKING.replace(
        "marks.open_step()", "import torch\nassert marks.recorder() is sys._training_profiler_recorder"
    )
    path = script(tmp_path, code + "assert marks.recorder() is sys._training_profiler_recorder\n")
    assert record(spec(tmp_path, PYTHON, str(path))).exit_code == 0, (tmp_path / "run" / "output.log").read_text()
    run = load(tmp_path / "run")
    assert sorted(run.steps["tokens"].tolist()) == [1] * 5
    assert len([*(tmp_path / "run").glob("source-*")]) == 2
