"""`diagnose-tokenization`: what it passes on, prints and writes, and how it ends when something is wrong."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from profiler.__main__ import main
from reference_trainer.report import diagnose_tokenization
from tests.fakes.programs import gone, start
from tests.fakes.tokenization import document


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The options of each measurement; none is made, the figures are made up."""
    calls: list[list[str]] = []

    def measured(options: list[str]) -> dict[str, Any]:
        calls.append(options)
        return document()

    monkeypatch.setattr(diagnose_tokenization, "measure_tokenization", measured)
    return calls


def test_it_passes_options_on_and_writes_nothing_unless_asked(
    asked: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["diagnose-tokenization"]) == 0
    options = {"corpus": "a.txt", "vocabulary": 300, "samples": 4, "sample-chars": 500, "seconds": 2.5, "workers": 3}
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    assert main(["diagnose-tokenization", *arguments]) == 0
    assert asked == [[], arguments]
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr()
    assert "Fastest here: pre-tokenized" in printed.out
    assert printed.err == ""


def test_out_is_the_figures_as_json(asked: list[list[str]], tmp_path: Path) -> None:
    out = tmp_path / "deep" / "figures.json"
    assert main(["diagnose-tokenization", "--out", str(out)]) == 0
    assert json.loads(out.read_text()) == document()


def test_nothing_is_overwritten_nor_measured_in_vain(
    asked: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures.json"
    out.write_text("mine")
    assert main(["diagnose-tokenization", "--out", str(out)]) == 2
    assert (out.read_text(), asked) == ("mine", [])
    assert capsys.readouterr().err == f"error: --out {out} exists already: choose another file\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--corpus", "missing.txt"), "error: corpus missing.txt does not exist\n"),
        (("--preset", "nope"), "error: unknown preset 'nope': choose one of tiny, small, base\n"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_program(
    capfd: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert main(["diagnose-tokenization", *options]) == 2
    assert capfd.readouterr() == ("", message)


@pytest.mark.usefixtures("importable")
@pytest.mark.slow
def test_ctrl_c_ends_the_measurement_too() -> None:
    started = start("diagnose-tokenization", "--seconds", "1000")
    child = only_child(started.pid)
    started.send_signal(2)
    out, err = started.communicate(timeout=60)
    assert (started.returncode, out, err) == (130, "", "error: interrupted; nothing was measured\n")
    assert gone(child)


def only_child(pid: int) -> int:
    """The number of the process that `pid` starts."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if children := psutil.Process(pid).children():
            return children[0].pid
        time.sleep(0.01)
    raise AssertionError("no process was started")


@pytest.mark.usefixtures("importable")
def test_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from pydoc_data.topics import topics

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    corpus, out = tmp_path / "small.txt", tmp_path / "figures.json"
    corpus.write_text("\n\n".join(topics[key] for key in sorted(topics))[:60_000], encoding="utf-8")
    arguments = ("--seconds", "0.01", "--sample-chars", "100", "--workers", "2", "--out", str(out))
    assert main(["diagnose-tokenization", "--corpus", str(corpus), *arguments]) == 0
    document = json.loads(out.read_text())
    displayed = capsys.readouterr().out
    assert "small.txt · 256 tokens · chunks of 8 samples of 100 characters" in displayed
    rates = {way["name"]: way["measured"]["samples_per_s"]["median"] for way in document["ways"] if way["measured"]}
    assert {"sequential", "batch", "parallel", "pre-tokenized"} <= rates.keys()
