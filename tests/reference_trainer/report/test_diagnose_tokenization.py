"""`diagnose-tokenization`: what it passes on, prints and writes, and how it ends when something is wrong."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from profiler.__main__ import main
from profiler.core.errors import Exit, ProfilerError
from reference_trainer.lm.tokenization import SCHEMA
from reference_trainer.report import diagnose_tokenization
from reference_trainer.report.diagnose_tokenization import measure_tokenization
from tests.fakes.programs import gone, script, start
from tests.fakes.tokenization import document


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The options of each measurement; none is made, the figures are made up."""
    calls: list[list[str]] = []

    def measured(options: list[str]) -> dict[str, Any]:
        calls.append(options)
        return document()

    monkeypatch.setattr(diagnose_tokenization, "measure_tokenization", measured)
    return calls


def test_it_passes_options_on_and_writes_nothing_unless_asked(
    measurements: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["diagnose-tokenization"]) == 0
    options = {"corpus": "a.txt", "vocabulary": 300, "samples": 4, "sample-chars": 500, "seconds": 2.5, "workers": 3}
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    assert main(["diagnose-tokenization", *arguments]) == 0
    assert measurements == [[], arguments]
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr()
    assert "Fastest here: pre-tokenized" in printed.out
    assert printed.err == ""


def test_out_is_a_new_file_with_the_figures_as_json(
    measurements: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "figures.json"
    assert main(["diagnose-tokenization", "--out", str(out)]) == 0
    assert json.loads(out.read_text()) == document()
    capsys.readouterr()
    out.write_text("mine")
    assert main(["diagnose-tokenization", "--out", str(out)]) == 2
    assert (out.read_text(), measurements) == ("mine", [[]]), "nothing is overwritten, nor measured in vain"
    assert capsys.readouterr().err == f"error: --out {out} exists already: choose another file\n"


def test_bad_input_is_reported_by_the_program(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose-tokenization", "--corpus", "missing.txt"]) == 2
    assert capfd.readouterr() == ("", "error: corpus missing.txt does not exist\n")


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
    rates = {way["name"]: way["measured"]["samples_per_s"]["median"] for way in document["ways"]}
    assert {"sequential", "batch", "parallel", "pre-tokenized"} <= rates.keys()


# ---------------------------------------------------------------- the measurement as a process

PROGRAM = "stand_in"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another program in the place of the trainer's: takes its text."""

    def replace(text: str) -> None:
        script(tmp_path, text, f"{PROGRAM}.py")
        monkeypatch.setattr(diagnose_tokenization, "_MODULE", PROGRAM)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return replace


def test_the_document_is_what_it_printed_for_the_options(stand_in) -> None:
    assert diagnose_tokenization.SCHEMA == SCHEMA, "that of the program"
    stand_in("import json, sys; print(json.dumps({'schema': 'tokenization/2', 'options': sys.argv[1:]}))")
    assert measure_tokenization(["--samples", "3"])["options"] == ["--samples", "3"]


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("print('error: no such text', file=sys.stderr); sys.exit(2)", Exit.USAGE, "no such text"),
        ("sys.exit(130)", Exit.INTERRUPTED, "interrupted; nothing was measured"),
        (
            "print('a\\nTypeError: x\\033[2J', file=sys.stderr); sys.exit(1)",
            Exit.TARGET_FAILED,
            "the measurement of tokenization exited with 1: TypeError: x[2J",
        ),
        (
            "os.kill(os.getpid(), 9)",
            Exit.TARGET_FAILED,
            "the measurement of tokenization was ended by signal 9: it printed nothing",
        ),
        ("print('hello')", Exit.TARGET_FAILED, "the measurement of tokenization did not print tokenization/2"),
        ("print('[1]')", Exit.TARGET_FAILED, "the measurement of tokenization did not print tokenization/2"),
        ("print('{}')", Exit.TARGET_FAILED, "the measurement of tokenization did not print tokenization/2"),
    ],
)
def test_how_it_fails_is_one_line(stand_in, text: str, code: Exit, message: str) -> None:
    stand_in(f"import os, sys\n{text}")
    with pytest.raises(ProfilerError) as caught:
        measure_tokenization([])
    assert (str(caught.value), caught.value.exit_code) == (message, code)


HEEDS = "lambda *_: (open('heeded', 'w').close(), sys.exit(130))"


@pytest.mark.parametrize(("handler", "grace", "heeded"), [(HEEDS, 1e9, True), ("signal.SIG_IGN", 0.1, False)])
def test_ctrl_c_is_passed_on_and_a_program_that_does_not_heed_it_is_killed(
    stand_in, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: str, grace: float, heeded: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(diagnose_tokenization, "_GRACE_S", grace)
    stand_in(
        "import os, signal, sys\n"
        f"signal.signal(signal.SIGINT, {handler})\n"
        "open('ready', 'w').write(str(os.getpid()))\n"
        "while True: signal.pause()"
    )
    ready = tmp_path / "ready"

    def interrupt() -> None:
        while not (ready.exists() and ready.read_text()):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    another = threading.Thread(target=interrupt)
    another.start()
    try:
        with pytest.raises(ProfilerError) as caught:
            measure_tokenization([])
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        another.join()
        signal.signal(signal.SIGINT, before)
    assert (str(caught.value), caught.value.exit_code) == ("interrupted; nothing was measured", Exit.INTERRUPTED)
    assert (tmp_path / "heeded").exists() == heeded
    assert gone(int(ready.read_text()))
