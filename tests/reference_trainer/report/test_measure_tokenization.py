"""Running the measurement of tokenization: what it prints is read, and how it fails is one line."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from profiler.core.errors import Exit, ProfilerError
from reference_trainer.report import diagnose_tokenization
from reference_trainer.report.diagnose_tokenization import measure_tokenization
from tests.fakes.programs import gone, script

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
    stand_in("import json, sys; print(json.dumps({'schema': 'tokenization/1', 'options': sys.argv[1:]}))")
    assert measure_tokenization(["--samples", "3"])["options"] == ["--samples", "3", "--json"]


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
        ("print('hello')", Exit.TARGET_FAILED, "the measurement of tokenization did not print tokenization/1"),
        ("print('[1]')", Exit.TARGET_FAILED, "the measurement of tokenization did not print tokenization/1"),
        ("print('{}')", Exit.TARGET_FAILED, "the measurement of tokenization did not print tokenization/1"),
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


def test_the_schema_is_that_of_the_program() -> None:
    from reference_trainer.lm.tokenization import SCHEMA

    assert diagnose_tokenization.SCHEMA == SCHEMA
