"""The text of recorded lines: what is stored, what is left out, and where it is read again."""

from __future__ import annotations

import json
import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from profiler.core.metrics import SOURCE_LINE
from profiler.run import store, tables
from profiler.run.load import load
from profiler.run.model import RunInfo, Site
from profiler.run.source_text import (
    MAX_CHARACTERS,
    MAX_FILE_BYTES,
    SOURCE_TEXT,
    ProgramFiles,
    with_source,
    write_source_text,
)

LATER = 3600.0
"""Seconds by which a program starts after its files were written."""


def recorded(folder: Path, frames: list[tuple[str, int, str]], **facts: Any) -> Path:
    """A run directory with one stack and the facts of one process."""
    run = folder / "run"
    store.create(run)
    store.write_manifest(run, RunInfo(tables.SCHEMA, "id", "2026-01-01", ("python", "train.py"), state="complete"))
    (run / store.RECORDER / tables.STACK_TEXTS).write_text(json.dumps({"id": 0, "frames": frames}) + "\n")
    (process := run / tables.source_name(7)).mkdir()
    meta = {"schema": tables.SCHEMA, "pid": 7, "rank": 0, "facts": facts}
    (process / tables.SOURCE_META).write_text(json.dumps(meta))
    (process / tables.SITES).write_text(
        "".join(
            json.dumps({"id": number, "file": file, "line": line, "function": function}) + "\n"
            for number, (file, line, function) in enumerate(frames)
        )
    )
    return run


def texts(run: Path, files: ProgramFiles | None = None) -> dict[str, dict[str, str]]:
    write_source_text(run, files or ProgramFiles(time.time() + LATER))
    if not (run / SOURCE_TEXT).exists():
        return {}
    document = json.loads((run / SOURCE_TEXT).read_text())
    return {file: content["lines"] for file, content in document["files"].items()}


def script(folder: Path, text: str = "import torch\n\n    loss.backward()\n") -> str:
    file = folder / "train.py"
    file.write_text(text)
    return str(file)


def test_the_recorded_lines_have_their_text_and_the_file_its_hash(tmp_path: Path) -> None:
    file = script(tmp_path)
    run = recorded(tmp_path, [(file, 3, "main"), (file, 2, "main"), (file, 9, "main")])
    assert texts(run) == {file: {"3": "loss.backward()"}}, "neither empty lines nor lines that there are not"
    content = json.loads((run / SOURCE_TEXT).read_text())["files"][file]
    assert content["sha256"] == sha256(Path(file).read_bytes()).hexdigest()


def test_literals_of_secret_names_are_masked_also_where_the_line_is_cut(tmp_path: Path) -> None:
    long = "x" * (MAX_CHARACTERS - 20)
    file = script(tmp_path, f'login(token="hunter2")\n{long} = "https://me:hunter3@host"\n')
    shown = texts(recorded(tmp_path, [(file, 1, "main"), (file, 2, "main")]))[file]
    assert shown["1"] == 'login(token="***")'
    assert "hunter" not in shown["2"]
    assert len(shown["2"]) <= MAX_CHARACTERS


def test_a_loaded_run_has_the_text_at_its_sites_stacks_and_facts(tmp_path: Path) -> None:
    file = script(tmp_path)
    settings = dict.fromkeys(("batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers"))
    loader = {"file": file, "line": 1, "function": "main", "variable": "loader", **settings}
    row = [False, "", 1, 0.1, 1, 0.1]
    run = recorded(
        tmp_path, [(file, 3, "main")], loaders={"DataLoader": loader}, operators={"lines": [[[[file, 3, "f"]], *row]]}
    )
    write_source_text(run, ProgramFiles(time.time() + LATER))
    loaded = load(run)
    read = read_back(loaded.path)
    assert [site.source for site in (*read.sites.values(), *read.stacks[0])] == ["loss.backward()"] * 2
    assert loaded.info.facts["loaders"]["DataLoader"] == {**loader, "source": "import torch"}
    assert Site.from_fact(loaded.info.facts["loaders"]["DataLoader"]).source == "import torch"
    assert loaded.info.facts["operators"] == {"lines": [[[[file, 3, "f", "loss.backward()"]], *row]]}
    assert loaded.problems == ()


def read_back(run: Path) -> Any:
    from profiler.run.source import read_source
    from profiler.run.source_text import read_source_text

    lines = read_source_text(run).lines
    source = read_source(run / tables.source_name(7), lines)
    source.stacks = read_source(run / store.RECORDER, lines).stacks
    return source


def test_a_run_without_text_loads(tmp_path: Path) -> None:
    run = recorded(tmp_path, [(script(tmp_path), 3, "main")])
    assert [site.source for site in read_back(run).stacks[0]] == [""]
    assert load(run).problems == ()


def test_older_runs_have_the_text_among_the_names_of_samples(tmp_path: Path) -> None:
    run = recorded(tmp_path, [("train.py", 3, "main")])
    names = run / store.RECORDER / tables.NAMES
    names.write_text(json.dumps({"id": 0, "text": f"{SOURCE_LINE}train.py:3:f(a: int)"}) + "\n")
    assert [site.source for site in read_back(run).stacks[0]] == ["f(a: int)"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "source-text/9"}', '{"schema": "source-text/1"}'])
def test_a_damaged_file_is_reported_and_the_run_loads(tmp_path: Path, content: str) -> None:
    run = recorded(tmp_path, [("train.py", 3, "main")])
    (run / SOURCE_TEXT).write_text(content)
    [problem] = load(run).problems
    assert (problem.code, problem.values["file"]) == ("metadata-damaged", SOURCE_TEXT)


def test_a_file_that_changed_after_the_start_is_left_out(tmp_path: Path) -> None:
    file = script(tmp_path)
    started = Path(file).stat().st_ctime - 1
    assert texts(recorded(tmp_path, [(file, 3, "main")]), ProgramFiles(started)) == {}


def test_a_copy_with_an_old_date_counts_as_changed(tmp_path: Path) -> None:
    file = script(tmp_path)
    os.utime(file, (0, 0))
    started = Path(file).stat().st_ctime - 1
    assert texts(recorded(tmp_path, [(file, 3, "main")]), ProgramFiles(started)) == {}


def test_libraries_typed_code_and_things_that_are_no_source_are_left_out(tmp_path: Path) -> None:
    library = tmp_path / "lib" / "python3.12" / "site-packages" / "torch"
    library.mkdir(parents=True)
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "long.py").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    (tmp_path / "coded.py").write_bytes(b"# coding: no-such-coding\nx = 1\n")
    files = [
        script(library),
        "<stdin>",
        str(tmp_path),
        *(str(tmp_path / f"{n}.py") for n in ("no", "fifo", "long", "coded")),
    ]
    assert texts(recorded(tmp_path, [(file, 1, "main") for file in files])) == {}


def test_lines_are_counted_as_python_counts_them_and_cut(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(b"# coding: latin-1\r\nx = '\xe9\x0c\x1d'\r\ny = 1\r" + b"z" * 300)
    lines = texts(recorded(tmp_path, [(str(file), line, "main") for line in (1, 2, 3, 4)]))[str(file)]
    assert lines == {"1": "# coding: latin-1", "2": "x = 'é\x0c\x1d'", "3": "y = 1", "4": "z" * MAX_CHARACTERS}


def test_relative_names_belong_to_the_working_directory_and_the_root_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    script(tmp_path / "work")
    run = recorded(tmp_path, [("train.py", 1, "main")])
    later = time.time() + LATER
    assert texts(run, ProgramFiles(later)) == {}
    assert texts(run, ProgramFiles(later, str(tmp_path / "work"))) == {"train.py": {"1": "import torch"}}
    (run / SOURCE_TEXT).unlink()
    assert texts(run, ProgramFiles(later, "/work", str(tmp_path))) == {"train.py": {"1": "import torch"}}


def test_the_project_is_the_checkout_else_the_working_directory_else_the_folder_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "code" / "scripts").mkdir(parents=True)
    files, command = ProgramFiles(0.0, str(tmp_path / "code")), ("python", "scripts/train.py", "--config", "other.py")
    assert files.project(command) == files.project(("python", "-m", "train")) == str(tmp_path / "code")
    assert files.project(("python", "../elsewhere/train.py")) == str(tmp_path / "elsewhere")
    assert ProgramFiles(0.0).project(command) == ""
    (tmp_path / "code" / ".git").write_text("gitdir: of a worktree")
    (tmp_path / ".git").mkdir()
    assert files.project(command) == str(tmp_path / "code"), "the nearest one"
    inner = ProgramFiles(0.0, str(tmp_path / "code" / "scripts"))
    assert inner.project(("python", "train.py")) == inner.project(("python", "-m", "train")) == str(tmp_path / "code")
    assert ProgramFiles(0.0, "/code/scripts", str(tmp_path)).project(("python", "train.py")) == "/code"


def test_no_table_is_read_for_the_text_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\n")
    run = recorded(tmp_path, [(str(file), 1, "<module>")])

    def refuse(path: Path, *_: object) -> None:
        raise AssertionError(f"{path} is read")

    monkeypatch.setattr("profiler.run.source._read_table", refuse)
    assert texts(run) == {str(file): {"1": "import torch"}}


def test_a_folder_that_may_not_be_read_is_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)  # as before Python 3.14; root may read all folders
    assert ProgramFiles(0.0, str(tmp_path)).project(("python", "train.py")) == str(tmp_path)


def test_the_files_of_a_running_process() -> None:
    ours = ProgramFiles.of_process(os.getpid())
    assert (ours.folder, ours.root) == (str(Path.cwd()), "")
    assert 0 < ours.started < time.time()
    assert ProgramFiles.of_process(2**22 + 1).started == 0.0, "no file is older than that"


@pytest.mark.parametrize("fact", [None, 3, "text", [1, 2, 3], ["a", 1], {"file": "a.py"}, [["a.py", 1, "f"]]])
def test_facts_without_a_known_line_stay_as_they_are(fact: Any) -> None:
    assert with_source(fact, {("b.py", 1): "x"}) == fact
