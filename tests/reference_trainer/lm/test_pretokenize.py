"""`pretokenize`: the same bytes however often it was interrupted and whatever the number of workers; refusals."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from reference_trainer.lm import shard_writer, tokenizer
from reference_trainer.lm.__main__ import main as trainer
from reference_trainer.lm.chunks import ChunkedText, Chunks
from reference_trainer.lm.corpus import load_corpus
from reference_trainer.lm.job import open_source, prepare
from reference_trainer.lm.model import PRESETS, ModelConfig
from reference_trainer.lm.pretokenize import main
from reference_trainer.lm.settings import Settings
from reference_trainer.lm.shards import ShardChunks, read_index
from reference_trainer.lm.tokenizer import train_or_load
from tests.reference_trainer.lm.sources import assert_same
from tests.reference_trainer.processes import refused, started, started_until

pytestmark = pytest.mark.usefixtures("own_cache")
PAUSED = """
import sys
from pathlib import Path
from reference_trainer.lm.pretokenize import main

replace, pause_in = Path.replace, sys.argv.pop(1)

def paused(path, target):
    if target.name == pause_in:
        print("paused", flush=True)
        sys.stdin.read()
    return replace(path, target)

Path.replace = paused
sys.exit(main())
"""
"""Takes the file before whose renaming it waits until it is killed or interrupted; then the command's own options."""
INTERRUPTED = "interrupted: finished shards are kept, the same command goes on from there\n"
MODULE = ("-m", "reference_trainer.lm.pretokenize")
MANY_SHARDS = ("--shard-tokens", "2000")  # some hundred of them


@pytest.fixture(scope="module")
def long_file(small_text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So much work that a run can be interrupted in the middle of it."""
    path = tmp_path_factory.mktemp("long") / "long.txt"
    path.write_text(small_text * 10, encoding="utf-8")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def finished(folder: Path) -> int:
    """The number of shards in the index."""
    return len(read_index(folder).shards)


def command(corpus: Path, out: Path, *more: str) -> list[str]:
    return ["--dataset", str(corpus), "--output", str(out), *more]


def written(corpus: Path, out: Path, *more: str) -> dict[str, bytes]:
    """The files of a folder after the command has succeeded."""
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
    """The files that one worker writes without an interruption."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache_home))
        return written(long_file, tmp_path_factory.mktemp("undisturbed") / "shards", *MANY_SHARDS, "--workers", "1")


def test_default_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "shards"
    assert main(["--output", str(out), "--preset", "small"]) == 0
    printed = capsys.readouterr()
    assert (printed.err, ", 1 shard of uint16" in printed.out) == ("", True), "a progress bar is for terminals"
    corpus = load_corpus()
    text = ChunkedText(corpus, train_or_load(corpus, 4096), 3000, 8)
    assert_same(Chunks(text, batch=True), ShardChunks(out, text), range(40))


def test_the_index_describes_the_shards(corpus_file: Path, tmp_path: Path) -> None:
    written(corpus_file, tmp_path, "--shard-tokens", "9000")
    index, corpus = json.loads((tmp_path / "index.json").read_text()), load_corpus(corpus_file)
    shards, files = index.pop("shards"), sorted(tmp_path.glob("*.bin"))
    text = ChunkedText(corpus, train_or_load(corpus, 256), 3000, 8)
    assert index == {
        "schema": 2, "complete": True, "tokenizer": text.tokenizer.fingerprint, "tokenizer_file": "",
        "corpus": "small.txt", "corpus_sha256": corpus.sha256, "vocabulary": 256, "sample_chars": text.sample_chars,
        "dtype": "uint16",
        "shard_tokens": 9000,
    }  # fmt: skip
    assert [(shard["file"], shard["bytes"]) for shard in shards] == [(file.name, file.stat().st_size) for file in files]
    *full, _ = (shard["tokens"] for shard in shards)
    longest = 800  # tokens of a sample, well above what 3000 / 8 gives
    assert len(full) > 1
    assert all(9000 <= tokens < 9000 + longest for tokens in full), full


@pytest.fixture
def model_file(corpus_file: Path, tmp_path: Path) -> Path:
    """A SentencePiece model as its own trainer writes it, with a vocabulary that no preset has."""
    path = tmp_path / "mine.model"
    path.write_bytes(tokenizer._train(load_corpus(corpus_file), 300))
    return path


def test_a_model_of_the_user_makes_the_shards_that_train_with_it(
    corpus_file: Path, model_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = tmp_path / "shards"
    written(corpus_file, shards, "--tokenizer", str(model_file))
    index = read_index(shards)
    assert (index.tokenizer_file, index.vocabulary, index.dtype) == ("mine.model", 300, "uint16")
    options = ("--corpus", str(corpus_file), "--shards", str(shards), "--fixes", "pretokenize", "--device", "host")
    settings = Settings(corpus=corpus_file, shards=shards, fixes=("pretokenize",), device="host", tokenizer=model_file)
    job = prepare(settings)
    assert job.config.vocabulary == 300
    with closing(open_source(job)) as source:
        assert_same(Chunks(job.text, batch=True), source, range(3))
    line = refused(trainer, capsys, *options)
    assert f"of tokenizer {index.tokenizer} (mine.model), not " in line
    assert "(--tokenizer, --preset)" in line


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.model", "No such file or directory"),
        (".", "Is a directory"),
        ("empty.model", "this is not a SentencePiece model: name the file that SentencePiece wrote as PREFIX.model"),
        ("tokenizer.json", "this is not a SentencePiece model"),
    ],
)
def test_a_file_that_is_no_model(
    corpus_file: Path, in_folder: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    Path("empty.model").touch()
    Path("tokenizer.json").write_text('{"version": "1.0", "model": {"type": "BPE"}}')
    line = refused(main, capsys, *command(corpus_file, Path("shards"), "--tokenizer", name))
    assert line.startswith(f"error: --tokenizer {name}: {message}")
    assert not Path("shards").exists()


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


def test_killed_and_resumed_gives_the_same_bytes(
    long_file: Path, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    for shards, workers in ((5, 1), (10, 2)):  # a resumed run can be killed as well
        with stopped_in(long_file, tmp_path, shards, workers):
            pass
    assert not read_index(tmp_path).complete
    remaining = {path: path.stat() for path in sorted(tmp_path.glob("shard-*.bin"))}
    assert len(remaining) == 10
    (tmp_path / "shard-00010.bin").write_bytes(b"renamed, and not in the index yet")
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
    assert (process.returncode, out, err) == (130, "", INTERRUPTED)
    complete = {f"shard-{number:05}.bin" for number in range(5)}
    assert set(contents(tmp_path)) == {*complete, "index.json", ".lock"}, "no unfinished file stays"
    assert written(long_file, tmp_path, *MANY_SHARDS) == undisturbed
    assert f"(5 kept, {finished(tmp_path) - 5} made); " in capsys.readouterr().out


def test_a_swallowed_ctrl_c_ends_it_at_the_next_block(
    long_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python ignores exceptions that are raised in a `__del__`."""
    add_shard, added = shard_writer._add_shard, []

    class Buffer:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def swallowing(*arguments: object) -> object:
        added.append(add_shard(*arguments))
        if len(added) == 2:
            Buffer()
        return added[-1]

    monkeypatch.setattr(shard_writer, "_add_shard", swallowing)
    monkeypatch.setattr(shard_writer, "BLOCK_CHARS", 1)  # a sample a block
    assert main(command(long_file, tmp_path, "--shard-tokens", "200", "--workers", "1")) == 130
    assert capsys.readouterr().err == INTERRUPTED
    assert finished(tmp_path) == len(added) == 2


def test_files_of_others_stay(corpus_file: Path, tmp_path: Path) -> None:
    names = (".notes.new", ".shard-notes.bin.new", ".shard-99999.bin.new", "shard-notes.bin")
    for name in names:
        (tmp_path / name).write_text("someone's")
    written(corpus_file, tmp_path, *MANY_SHARDS)
    assert [(tmp_path / name).read_text() for name in names] == ["someone's"] * len(names)


def test_complete_shards_are_verified_and_left_alone(
    corpus_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(corpus_file, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("[!.]*")}
    written(corpus_file, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("[!.]*")} == before
    with open(tmp_path / "shard-00000.bin", "r+b") as file:
        file.write(b"\xff")
    assert f"{tmp_path}/shard-00000.bin is damaged" in refused(main, capsys, *command(corpus_file, tmp_path))


def test_file_too_large_for_the_disk(long_file: Path, tmp_path: Path) -> None:
    """A write that the system refuses: one line, the finished shards stay, and the command continues from there."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    train_or_load(load_corpus(long_file), 256)  # the limit is for all files: the tokenizer has to exist before
    options = command(long_file, tmp_path, "--shard-tokens", "50000")
    process = started(*MODULE, *options, preexec_fn=limit)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err == f"error: {tmp_path}/shard-00000.bin: File too large\n"
    assert not list(tmp_path.glob("*.new"))
    assert main(options) == 0


# ---------------------------------------------------------------- refusals


@pytest.fixture
def in_folder(tmp_path: Path, corpus_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file that is no folder, another corpus, and another preset."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PRESETS, "other", ModelConfig(8, 1, 200))
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "other.txt").write_text(corpus_file.read_text()[:50_000])
    return tmp_path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "0"), "--workers 0: must be at least 1"),
        (("--shard-tokens", "0"), "--shard-tokens 0: must be at least 1"),
        (("--tokens-per-chunk", "0"), "--tokens-per-chunk 0: must be at least 1"),
        (("--samples-per-chunk", "-1"), "--samples-per-chunk -1: must be at least 1"),
        (("--preset", "nope"), "unknown preset 'nope'"),
        (("--dataset", "missing.txt"), "corpus missing.txt does not exist"),
        (("--tokens-per-chunk", "1000000"), "is too short for one chunk"),
        (("--output", "file"), "shards cannot be written to file: File exists"),
        (("--output", "file/shards"), "shards cannot be written to file/shards: Not a directory"),
    ],
)
def test_bad_input(
    corpus_file: Path, in_folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert message in refused(main, capsys, *command(corpus_file, Path("shards"), *options))
    assert not Path("shards").exists(), "nothing is made for a command that cannot work"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dataset", "other.txt"), "of corpus small.txt (SHA-256 "),
        (("--preset", "other"), "of tokenizer"),
        (("--tokens-per-chunk", "2000"), "of samples of "),
        (("--samples-per-chunk", "4"), "of samples of "),
        (("--shard-tokens", "5000"), "of 10000000 tokens, not 5000 (--shard-tokens)"),
    ],
)
def test_folder_of_other_shards(
    corpus_file: Path, in_folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    before = written(corpus_file, Path("shards"))
    line = refused(main, capsys, *command(corpus_file, Path("shards"), *options))
    assert line.startswith(f"error: shards holds other shards, {message}")
    assert line.endswith(": name another folder, or remove its index.json and shard-*.bin\n")
    assert contents(Path("shards")) == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("shard-00000.bin", "someone's", " holds shard-00000.bin but no index.json: name another folder\n"),
        *(("index.json", content, " is not a folder of shards: ") for content in ("{}", "<html>")),
    ],
)
def test_folder_of_another_program(
    corpus_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    assert refused(main, capsys, *command(corpus_file, tmp_path)).startswith(f"error: {tmp_path}{message}")
    assert contents(tmp_path) == {name: content.encode()}, "not even a lock is added"


def test_two_writers(corpus_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second is refused while the first writes, and the lock goes with the process, killed or not."""
    hold = "import sys; from pathlib import Path; from reference_trainer.lm.shard_writer import locked\n"
    hold += "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    with started_until("held", "-c", hold, tmp_path):
        message = refused(main, capsys, *command(corpus_file, tmp_path))
    assert f"{tmp_path}: another process writes shards here" in message
    written(corpus_file, tmp_path)
