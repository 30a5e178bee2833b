"""`diagnose-tokenization`: what it passes on, prints and writes, and how it ends when something is wrong."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from profiler.__main__ import main
from reference_trainer.lm import tokenization
from tests.fakes.tokenization import document
from tests.reference_trainer.processes import raising

NAMES = ("corpus", "vocabulary", "preset", "samples", "sample_chars", "seconds", "workers")


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The given options of each measurement; none is made, the figures are made up."""
    calls: list[dict[str, Any]] = []

    def measured(arguments: argparse.Namespace) -> dict[str, Any]:
        calls.append({name: given for name in NAMES if (given := getattr(arguments, name)) is not None})
        return document()

    monkeypatch.setattr(tokenization, "measured", measured)
    return calls


def test_it_passes_options_on_and_writes_nothing_unless_asked(
    measurements: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["diagnose-tokenization"]) == 0
    given = {"vocabulary": 300, "samples": 4, "sample_chars": 500, "seconds": 2.5, "workers": 3}
    arguments = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert main(["diagnose-tokenization", "--corpus", "a.txt", *arguments]) == 0
    assert measurements == [{}, {"corpus": Path("a.txt"), **given}]
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr()
    assert "Fastest here: pre-tokenized" in printed.out
    assert printed.err == ""


def test_out_is_a_new_file_with_the_figures_as_json(
    measurements: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "figures.json"
    assert main(["diagnose-tokenization", "--out", str(out)]) == 0
    assert json.loads(out.read_text()) == document()
    capsys.readouterr()
    out.write_text("mine")
    assert main(["diagnose-tokenization", "--out", str(out)]) == 2
    assert (out.read_text(), measurements) == ("mine", [{}]), "nothing is overwritten, nor measured in vain"
    assert capsys.readouterr().err == f"error: --out {out} exists already: choose another file\n"


def test_bad_input_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose-tokenization", "--corpus", "missing.txt"]) == 2
    assert capfd.readouterr() == ("", "error: corpus missing.txt does not exist\n")


def test_ctrl_c_ends_the_measurement(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tokenization, "measured", raising(KeyboardInterrupt()))
    assert main(["diagnose-tokenization"]) == 130
    assert capsys.readouterr() == ("", "error: interrupted; nothing was measured\n")


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
    rates = {way["name"]: way["measured"]["samples_per_s"]["median"] for way in document["ways"]}
    assert {"sequential", "batch", "parallel", "pre-tokenized"} <= rates.keys()
