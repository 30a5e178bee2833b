"""The trainer's command line: every bad input is one line and exit code 2, before any training where it can be."""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from reference_trainer.errors import TrainerError
from reference_trainer.lm import history, loop
from reference_trainer.lm.__main__ import main
from tests.reference_trainer import processes
from tests.reference_trainer.lm import learners

pytestmark = pytest.mark.usefixtures("own_cache")
MODULE = ("-m", "reference_trainer.lm")
LEARN = ",".join(learners.LEARN)
QUICK = ("--device", "host", "--tokens-per-chunk", "300", "--samples-per-chunk", "4", "--warmup-seconds", "0")


@pytest.fixture
def options(corpus_file: Path) -> tuple[str, ...]:
    return (*QUICK, "--corpus", str(corpus_file), "--max-chunks", "1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--variant", "nope"), "unknown variant 'nope': choose as-found or fixed"),
        (("--variant", "torch-token", "--empty-kernels"), "--empty-kernels means nothing with --variant torch-token"),
        (("--variant", "torch-batched", "--dtype", "bf16"), "--dtype means nothing with --variant torch-batched"),
        (("--variant", "torch-token", "--max-memory", "0.5"), "--max-memory means nothing with --variant torch-token"),
        (("--variant", "fixed", "--fixes", "pooled"), "--variant means nothing beside --fixes: leave one out"),
        (("--shards", "it"), "--shards means nothing without fix 'pretokenize': add it to --fixes, or leave --shards"),
        (("--corpus", ""), "--corpus is empty: name a path, or leave --corpus out"),
        (("--result", ""), "--result is empty"),
        (("--preset", "nope"), "unknown preset 'nope': choose one of tiny, small, gpu, base"),
        (("--device", "nope"), "unknown device 'nope': choose one of "),
        (("--fixes", "nope"), "unknown fix 'nope': choose from "),
        (("--fixes", "prefetch"), "means nothing without async, device-loss, zero-copy: add them"),
        (("--corpus", "missing.txt"), "corpus missing.txt does not exist"),
        (("--corpus", "."), "11 of 11 lines are broken"),
        (("--seconds", "0"), "--seconds 0.0: must be a number of seconds above 0"),
        (("--result", "missing/x.json"), "--result missing/x.json: there is no folder missing"),
        (("--result", "."), "--result . is a folder: name a file"),
        (("--metrics", "."), "--metrics . is a folder: name a file"),
        (("--result", "x" * 255), ": File name too long"),
        (("--metrics", "x" * 255), ": File name too long"),
        (("--lr", "0.1"), "--lr means nothing without fix 'learn': add it to --fixes, or leave --lr out"),
        (("--checkpoint", "it"), "--checkpoint means nothing without fix 'learn'"),
        (("--fixes", LEARN, "--lr", "11"), "--lr 11.0: must be at most 10"),
        (("--fixes", LEARN, "--resume", "--checkpoint", "no"), "--resume: there is no folder no; leave --resume out"),
        (("--fixes", LEARN, "--metrics", "no/it.json"), "--metrics no/it.json: there is no folder no"),
        (("--performance", "no.toml"), "--performance no.toml: No such file or directory"),
        (("--max-memory", "2"), "performance: max_memory is 2.0, it must be a share, above 0 and at most 1"),
        (("--max-load", "0.5"), "performance setting max_load means nothing here: the language model runs on the one"),
        (("--num-devices", "2"), "performance setting num_devices means nothing here"),
        (("--cudnn-benchmark",), "performance setting cudnn_benchmark means nothing here"),
        (("--cudnn-deterministic",), "performance setting cudnn_deterministic means nothing here"),
        (
            ("--precision", "bf16"),
            "precision means nothing here: the language model has --dtype instead",
        ),
        (("--max-memory", "0.5"), "performance setting max_memory means nothing here: it is for device cuda"),
        (("--tf32",), "performance setting tf32 means nothing here: it is for device cuda; leave it out"),
        (("--empty-cache-frequency", "1"), "performance setting empty_cache_frequency means nothing here"),
    ],
)
def test_bad_input_is_one_line(
    options: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.jsonl").write_text('{"content": "x"}\n' * 11)
    assert message in processes.refused(main, capsys, *options, *arguments)
    assert not (tmp_path / "it").exists(), "a refused command makes no folder"


def test_fixes_with_blanks_and_twice(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*options, "--fixes", "pooled, batch-tokenize,,pooled "]) == 0
    assert capsys.readouterr().out.startswith("pooled+batch-tokenize on host device (CPU)")


def test_a_word_where_a_number_belongs(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*options, "--max-chunks", "many"])
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err == "error: argument --max-chunks: invalid int value: 'many'; --help lists all options\n"


def test_the_result_is_written_whole(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*options, "--variant", "fixed", "--result", str(tmp_path / "r.json")]) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["chunks"] == 1
    assert f"{result['tokens']:,} tokens in 1 chunks" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    if Path("/dev/full").exists():
        assert main([*options, "--variant", "fixed", "--result", "/dev/full"]) == 2
        assert capsys.readouterr().err == "error: --result /dev/full: No space left on device\n"
        assert Path("/dev/full").is_char_device()


def test_verbose_prints_what_tokenization_took(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*options, "--fixes", "batch-tokenize", "--verbose"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Batch tokenized 4 samples in ")]
    assert len(lines) >= 2, "a line a chunk, warm-up included"


def test_the_self_test_compares_both_variants(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*options, "--test", "--verbose"]) == 0
    *tokenized, line = capsys.readouterr().out.splitlines(keepends=True)
    assert tokenized
    for each in tokenized:
        assert re.fullmatch(r"Batch tokenized 4 samples in [\d.]+ ms \([\d.]+ ms per sample\)\n", each), each
    same, total = (int(word) for word in line.split() if word.isdigit())
    assert same == total > 500, line
    assert line.endswith("on host device (CPU)\n")


def test_a_swallowed_ctrl_c_is_obeyed(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python ignores exceptions that are raised in a `__del__`, and device buffers have one."""
    before, step, steps = [signal.getsignal(item) for item in (signal.SIGINT, signal.SIGTERM)], loop._Loop._step, []
    displayed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", displayed.append)

    class Buffer:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def swallowing(*inputs: Any, **by_name: Any) -> Any:
        steps.append(1)
        if len(steps) == 3:
            Buffer()
        return step(*inputs, **by_name)

    monkeypatch.setattr(loop._Loop, "_step", swallowing)
    assert main([*options, "--max-chunks", "9"]) == 130
    assert (capsys.readouterr().err, len(steps)) == ("interrupted\n", 3)
    assert not displayed, "nothing beside the one line"
    assert sys.unraisablehook == displayed.append, "the hook of others is restored"
    assert [signal.getsignal(item) for item in (signal.SIGINT, signal.SIGTERM)] == before
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main([*options])))  # it may set no handler
    thread.start()
    thread.join()
    assert codes == [0], "the interrupt is forgotten then"


def test_a_run_whose_metrics_cannot_be_written_has_a_summary(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = TrainerError("--metrics: No space left on device")
    monkeypatch.setattr(history, "write_output", processes.raising(full))
    assert main([*options, "--metrics", str(tmp_path / "m.json"), "--result", str(tmp_path / "r.json")]) == 2
    printed = capsys.readouterr()
    assert "tokens in 1 chunks" in printed.out
    assert printed.err == "error: --metrics: No space left on device\n"
    assert json.loads((tmp_path / "r.json").read_text())["chunks"] == 1


@pytest.mark.parametrize("variant", [pytest.param("as-found", marks=pytest.mark.slow), "fixed"])
def test_ctrl_c_for_real_ends_it_in_one_line(options: tuple[str, ...], variant: str) -> None:
    """While the device's worker runs, and the host perhaps waits for it."""
    endless = (*options, "--max-chunks", "1000000000", "--variant", variant, "--verbose")
    started = processes.started(*MODULE, *endless)
    for _ in range(8):  # it is well under way
        assert started.stdout is not None
        assert started.stdout.readline()
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert (started.returncode, err) == (130, "interrupted\n")


def test_a_reader_that_went_away(options: tuple[str, ...]) -> None:
    started = processes.started(*MODULE, *options, "--max-chunks", "1000000000", "--verbose")
    assert started.stdout is not None
    assert started.stdout.readline()
    started.stdout.close()
    assert started.stderr is not None
    err = started.stderr.read()
    assert (started.wait(60), err) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_no_room_for_the_output(options: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        started = processes.started(*MODULE, *options, stdout=full)
        _, err = started.communicate(timeout=60)
    assert (started.returncode, err) == (2, "error: cannot write the output: No space left on device\n")
