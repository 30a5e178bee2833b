"""docs/from-the-seeds.md: what each row names runs, and figures of reports are those of the reports."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reference_trainer.lm import tokenizer
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.pretokenize import main as pretokenize
from reference_trainer.performance import perf_config
from tests.fakes.programs import ROOT

pytestmark = pytest.mark.usefixtures("own_cache")

PAGE = (ROOT / "docs" / "from-the-seeds.md").read_text(encoding="utf-8")
SOURCES = {
    "A": "reports/2026-11-28-host-device/compare.md",
    "B": "docs/ssm.md",
}
UNMEASURED = ("not measured: ", "nothing claimed")
SAMPLES = ("--tokens-per-chunk", "300", "--samples-per-chunk", "4")
CHUNK = ("--max-chunks", "1", "--warmup-seconds", "0", "--device", "host", "--corpus", "TEXT")
SMALL = {
    "reference_trainer.lm": (*SAMPLES, *CHUNK),
    "reference_trainer.lm.pretokenize": SAMPLES,
    "reference_trainer.ssm": ("--epochs", "2", "--max-guesses", "2", "--sequence-length", "4", "--device", "cpu"),
    "profiler compare": ("--pairs", "1", "--out", "compared"),
    "profiler run": ("--out", "recorded"),
    "profiler diagnose-tokenization": ("--seconds", "0.1", "--corpus", "TEXT"),
}  # fmt: skip
"""Program -> options before those of the row, which take precedence."""
MORE = {
    "profiler compare": ("--seconds", "0.1", "--device", "host"),
    "profiler run -- python -m reference_trainer.lm": SMALL["reference_trainer.lm"],
    "reference_trainer.ssm --test-optimizations": ("--num-seeds", "1", "--student-dims", "4"),
}
"""Command -> options behind it."""
SLOW = ("profiler ", "--test-optimizations", "reference_trainer.ssm")
"""Commands that start processes, or fit students of many sizes."""


class Row(NamedTuple):
    """A row of a table."""

    theirs: str
    ours: str
    measured: str


def rows() -> list[Row]:
    cells = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return [Row(*(cell.strip() for cell in row)) for row in cells if row[0].strip() != "theirs"]


CODES = dict.fromkeys(row.ours.strip("`") for row in rows())


def test_every_row_names_one_thing_to_run_and_what_was_measured() -> None:
    assert len(rows()) > 50
    for row in rows():
        assert re.fullmatch("`[^`]+`", row.ours), row
        assert row.measured.startswith(UNMEASURED) or re.search(r" \([ABC]\)", row.measured), row


@pytest.mark.parametrize("source", SOURCES)
def test_figures_of_reports_are_in_the_reports(source: str) -> None:
    report, found = (ROOT / SOURCES[source]).read_text(encoding="utf-8"), 0
    for row in rows():
        parts = re.split(r" \(([ABC])\)", row.measured)
        for text, named in zip(parts[::2], parts[1::2], strict=False):
            for figure in re.findall(r"\d[\d.,]*\d|\d", text) if named == source else ():
                found += 1
                assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", report), (row, figure)
    assert found > (5 if source == "B" else 25)


@pytest.fixture(scope="module")
def prepared(corpus_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The text, the shards and the tokenizer's model of the page."""
    folder = tmp_path_factory.mktemp("seeds")
    model = folder / "mine.model"
    model.write_bytes(tokenizer._train(load_corpus(corpus_file), 300))
    return {"TEXT": str(corpus_file), "SHARDS": str(folder / "shards"), "MODEL": str(model)}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    vars(perf_config).pop("current", None)


def filled(text: str, prepared: dict[str, str]) -> str:
    for name, value in prepared.items():
        text = text.replace(name, value)
    return text


def sized(command: str) -> tuple[str, list[str]]:
    """The program of a command, and its options at a small size."""
    name = command.removeprefix("python -m ")
    program = next(program for program in sorted(SMALL, key=len, reverse=True) if f"{name} ".startswith(f"{program} "))
    return program, [*SMALL[program], *shlex.split(name.removeprefix(program)), *MORE.get(name, ())]


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, id=code, marks=[pytest.mark.slow] * any(word in code for word in SLOW))
        for code in CODES
        if code.startswith("python -m ")
    ],
)
def test_the_command_runs(code: str, prepared: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    if "SHARDS" in code:
        assert pretokenize(["--dataset", prepared["TEXT"], "--output", prepared["SHARDS"], *SAMPLES]) == 0
    program, options = sized(code)
    options = [filled(option, prepared) for option in options]
    if program.startswith(("profiler", "reference_trainer.ssm")):
        words = [sys.executable if word == "python" else word for word in (*program.split(), *options)]
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        name = program if program.endswith("pretokenize") else f"{program}.__main__"
        assert importlib.import_module(name).main(options) == 0


def test_the_functions_run(prepared: dict[str, str]) -> None:
    assert pretokenize(["--dataset", prepared["TEXT"], "--output", prepared["SHARDS"], *SAMPLES]) == 0
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(block, namespace)
    functions = [code for code in CODES if not code.startswith("python -m ")]
    assert len(functions) > 8
    for code in functions:
        vars(perf_config).pop("current", None)
        exec(filled(code, prepared), namespace)
    assert 0 < namespace["accuracy"] < 1 < namespace["loss"] < 6
    namespace["device"].close()
