"""`pretokenize`: whole and the same bytes however it was interrupted and whoever worked on it; refusals of one line."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference_trainer.lm import shard_writer
from reference_trainer.lm.chunks import Chunks, sample_chars
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.pretokenize import main
from reference_trainer.lm.shards import ShardChunks, planned_index
from reference_trainer.lm.tokenizer import train_or_load
from tests.reference_trainer.processes import refused, started, started_until

pytestmark = pytest.mark.usefixtures("own_cache")
PAUSED = """
import sys
from reference_trainer.lm import shard_writer
from reference_trainer.lm.pretokenize import main

class Paused(shard_writer._ShardFile):
    def add(self, counts, ids):
        super().add(counts, ids)
        if self._path.name == pause_in:
            print("paused", flush=True)
            sys.stdin.read()

pause_in = sys.argv.pop(1)
shard_writer._ShardFile = Paused
sys.exit(main())
"""
"""Takes the file that it stops in the middle of, until it is killed or interrupted; then the command's own options."""
MODULE = ("-m", "reference_trainer.lm.pretokenize")
MANY_SHARDS = ("--shard-tokens", "2000")  # some hundred of them


@pytest.fixture(scope="module")
def long_file(small_text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So much work that a run can be met in the middle of it."""
    path = tmp_path_factory.mktemp("long") / "long.txt"
    path.write_text(small_text * 25, encoding="utf-8")
    return path


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def finished(directory: Path) -> int:
    """Shards that the index has; a file that is not there yet has none."""
    try:
        return len(json.loads((directory / "index.json").read_text())["shards"])
    except FileNotFoundError:
        return 0


def command(corpus: Path, out: Path, *more: str) -> list[str]:
    return ["--corpus", str(corpus), "--out", str(out), *more]


def written(corpus: Path, out: Path, *more: str) -> dict[str, bytes]:
    """What a folder holds after the command has succeeded."""
    assert main(command(corpus, out, *more)) == 0
    return contents(out)


@contextmanager
def stopped_in(corpus: Path, out: Path, shards: int, workers: int) -> Iterator[subprocess.Popen[str]]:
    """A run that has finished so many shards, and is in the middle of the next; it is killed at the end."""
    options = command(corpus, out, *MANY_SHARDS, "--workers", str(workers))
    with started_until("paused", "-c", PAUSED, f"shard-{shards:05}.bin", *options) as process:
        assert finished(out) == shards
        assert (out / f".shard-{shards:05}.bin.new").exists()
        yield process


@pytest.fixture(scope="module")
def undisturbed(long_file: Path, cache_home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one worker writes in one go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache_home))
        return written(long_file, tmp_path_factory.mktemp("undisturbed") / "shards", *MANY_SHARDS, "--workers", "1")


# ---------------------------------------------------------------- what it writes


def test_default_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path / "new" / "shards"), "--preset", "small"]) == 0
    printed = capsys.readouterr()
    corpus = load_corpus()
    tokenizer = train_or_load(corpus, 4096)
    shards = ShardChunks(tmp_path / "new" / "shards", planned_index(corpus, tokenizer, 3000, 8), 3000, 8)
    chunks = Chunks(corpus, tokenizer, 3000, 8, batch=True)
    assert all(np.array_equal(chunks.ids(number), shards.ids(number)) for number in range(40))
    assert printed.err == "", "a progress bar is for terminals"
    assert ", 1 shard of uint16" in printed.out


def test_index_says_what_it_is_of(corpus_file: Path, tmp_path: Path) -> None:
    written(corpus_file, tmp_path, "--shard-tokens", "9000")
    index = json.loads((tmp_path / "index.json").read_text())
    corpus = load_corpus(corpus_file)
    tokenizer = train_or_load(corpus, 256)
    assert {name: index[name] for name in ("schema", "complete", "tokenizer", "corpus", "corpus_sha256")} == {
        "schema": 1,
        "complete": True,
        "tokenizer": tokenizer.fingerprint,
        "corpus": "small.txt",
        "corpus_sha256": corpus.sha256,
    }
    assert (index["vocabulary"], index["sample_chars"]) == (256, sample_chars(tokenizer, 3000, 8))
    assert [shard["file"] for shard in index["shards"]] == sorted(path.name for path in tmp_path.glob("*.bin"))
    assert [shard["bytes"] for shard in index["shards"]] == [
        path.stat().st_size for path in sorted(tmp_path.glob("*.bin"))
    ]
    *full, _ = (shard["tokens"] for shard in index["shards"])
    longest = 800  # tokens of a sample, well above what 3000 / 8 gives
    assert len(full) > 1
    assert all(9000 <= tokens < 9000 + longest for tokens in full), full


@pytest.mark.parametrize("workers", ["2", "5"])
def test_any_number_of_workers_writes_the_same(
    long_file: Path, tmp_path: Path, undisturbed: dict[str, bytes], workers: str
) -> None:
    assert written(long_file, tmp_path, *MANY_SHARDS, "--workers", workers) == undisturbed


def test_progress_bar_on_a_terminal(corpus_file: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = started(*MODULE, *command(corpus_file, tmp_path / "out"), stderr=theirs)
    out, _ = process.communicate(timeout=60)
    os.close(theirs)
    displayed = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert (process.returncode, out.count("\n")) == (0, 1)
    assert "tokenizing" in displayed
    assert "samples" in displayed


# ---------------------------------------------------------------- interrupted


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_and_resumed_gives_the_same_bytes(
    long_file: Path, tmp_path: Path, undisturbed: dict[str, bytes], workers: int
) -> None:
    for shards in (5, 10):  # what goes on can be killed as well
        with stopped_in(long_file, tmp_path, shards, workers):
            pass
    assert json.loads((tmp_path / "index.json").read_text())["complete"] is False
    remaining = {path: path.stat() for path in sorted(tmp_path.glob("shard-*.bin"))[: finished(tmp_path)]}
    assert len(remaining) == 10
    assert written(long_file, tmp_path, *MANY_SHARDS) == undisturbed
    for path, stat in remaining.items():
        now = path.stat()
        assert (now.st_ino, now.st_mtime_ns) == (stat.st_ino, stat.st_mtime_ns), f"{path.name} was written again"


def test_ctrl_c_is_130_and_leaves_finished_shards_only(
    long_file: Path, tmp_path: Path, undisturbed: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    with stopped_in(long_file, tmp_path, 5, 2) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "interrupted: finished shards are kept, the same command goes on from there\n"
    complete = {f"shard-{number:05}.bin" for number in range(5)}
    assert set(contents(tmp_path)) == {*complete, "index.json", ".lock"}, "no unfinished file stays"
    assert written(long_file, tmp_path, *MANY_SHARDS) == undisturbed
    assert f"(5 kept, {finished(tmp_path) - 5} made); " in capsys.readouterr().out


def test_a_swallowed_ctrl_c_ends_it_at_the_next_block(
    long_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python ignores what is raised in a `__del__`."""
    add, blocks = shard_writer._Output.add, []

    class Buffer:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def swallowing(*arguments: Any) -> None:
        add(*arguments)
        blocks.append(finished(tmp_path))
        if len(blocks) == 2:
            Buffer()

    monkeypatch.setattr(shard_writer._Output, "add", swallowing)
    assert main(command(long_file, tmp_path, "--shard-tokens", "200", "--workers", "1")) == 130
    assert capsys.readouterr().err == "interrupted: finished shards are kept, the same command goes on from there\n"
    assert len(blocks) == 2
    assert finished(tmp_path) == blocks[-1] > 0


def test_killed_between_a_shard_and_the_index(long_file: Path, tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    with stopped_in(long_file, tmp_path, 5, 1):
        pass
    next_one = f"shard-{finished(tmp_path):05}.bin"
    (tmp_path / next_one).write_bytes(b"of which the index knows nothing")
    assert written(long_file, tmp_path, *MANY_SHARDS) == undisturbed


def test_files_of_others_stay(corpus_file: Path, tmp_path: Path) -> None:
    names = (".notes.new", ".shard-notes.bin.new", ".shard-99999.bin.new", "shard-notes.bin")
    for name in names:
        (tmp_path / name).write_text("someone's")
    written(corpus_file, tmp_path, *MANY_SHARDS)
    assert [(tmp_path / name).read_text() for name in names] == ["someone's"] * len(names)


def test_complete_ones_are_verified_and_left_alone(corpus_file: Path, tmp_path: Path) -> None:
    written(corpus_file, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("[!.]*")}
    written(corpus_file, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("[!.]*")} == before


def test_file_too_large_for_the_disk(long_file: Path, tmp_path: Path) -> None:
    """A write that the system refuses: one line, the finished shards stay, and the command goes on from there."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    train_or_load(load_corpus(long_file), 256)  # the limit is for all files: the tokenizer has to be there
    options = command(long_file, tmp_path, "--shard-tokens", "50000")
    process = started(*MODULE, *options, preexec_fn=limit)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err == f"error: {tmp_path}/shard-00000.bin: File too large\n"
    assert not list(tmp_path.glob("*.new"))
    assert main(options) == 0


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "statement"),
    [
        (("--workers", "0"), "--workers 0: must be at least 1"),
        (("--shard-tokens", "0"), "--shard-tokens 0: must be at least 1"),
        (("--tokens-per-chunk", "0"), "--tokens-per-chunk 0: must be at least 1"),
        (("--samples-per-chunk", "-1"), "--samples-per-chunk -1: must be at least 1"),
        (("--preset", "nope"), "unknown preset 'nope'"),
        (("--corpus", "missing.txt"), "corpus missing.txt does not exist"),
        (("--tokens-per-chunk", "1000000"), "is too short for one chunk"),
        (("--out", "file"), "shards cannot be written to file: File exists"),
        (("--out", "file/shards"), "shards cannot be written to file/shards: Not a directory"),
    ],
)
def test_bad_input(
    corpus_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    statement: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("not a folder")
    assert statement in refused(main, capsys, *command(corpus_file, Path("shards"), *options))
    assert not (tmp_path / "shards").exists(), "nothing is made for a command that cannot work"


@pytest.mark.parametrize(
    ("options", "statement"),
    [
        (("--corpus", "other.txt"), "of corpus small.txt (SHA-256 "),
        (("--preset", "other"), "of tokenizer"),
        (("--tokens-per-chunk", "2000"), "of samples of "),
        (("--samples-per-chunk", "4"), "of samples of "),
        (("--shard-tokens", "5000"), "of 10000000 tokens, not 5000 (--shard-tokens)"),
    ],
)
def test_folder_of_other_shards(
    corpus_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    statement: str,
) -> None:
    from reference_trainer.lm.model import PRESETS, ModelConfig

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PRESETS, "other", ModelConfig(8, 1, 200))
    (tmp_path / "other.txt").write_text(corpus_file.read_text()[:50_000])
    before = written(corpus_file, Path("shards"))
    message = refused(main, capsys, *command(corpus_file, Path("shards"), *options))
    assert message.startswith("error: shards holds other shards, ")
    assert statement in message
    assert message.endswith(": name another folder, or remove its index.json and shard-*.bin\n")
    assert contents(tmp_path / "shards") == before


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("shard-00000.bin", "someone's", (" holds shard-00000.bin but no index.json: name another folder", "\n")),
        *(
            ("index.json", content, (" is not a folder of shards: ", ": name another\n"))
            for content in ("{}", "<html>", '{"schema": 1, "pages": []}', '["a"]')
        ),
    ],
)
def test_folder_of_someone_else(
    corpus_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: str,
    words: tuple[str, str],
) -> None:
    (tmp_path / name).write_text(content)
    message = refused(main, capsys, *command(corpus_file, tmp_path))
    assert message.startswith(f"error: {tmp_path}{words[0]}")
    assert message.endswith(words[1])
    assert name != "index.json" or "remove" not in message
    assert contents(tmp_path) == {name: content.encode()}, "nor a lock"


def test_damaged_shard_is_not_gone_on_from(
    corpus_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(corpus_file, tmp_path)
    with open(tmp_path / "shard-00000.bin", "r+b") as file:
        file.write(b"\xff")
    assert f"{tmp_path}/shard-00000.bin is damaged" in refused(main, capsys, *command(corpus_file, tmp_path))


def test_two_writers(corpus_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second is refused while the first is at it, and the lock goes with the process, killed or not."""
    hold = "import sys; from pathlib import Path; from reference_trainer.lm.shard_writer import locked\n"
    hold += "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    with started_until("held", "-c", hold, tmp_path):
        message = refused(main, capsys, *command(corpus_file, tmp_path))
    assert f"{tmp_path}: another process writes shards here" in message
    written(corpus_file, tmp_path)
