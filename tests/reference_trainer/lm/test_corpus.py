"""Reading a corpus, in every form that is taken and every way that it can be broken; and cutting it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from reference_trainer.errors import TrainerError
from reference_trainer.lm.corpus import (
    BROKEN_LINES_ALLOWED,
    SEPARATOR,
    Corpus,
    Samples,
    load_corpus,
    without_repeated_paragraphs,
)
from tests.reference_trainer.processes import raising, refusal

DOCUMENTS = ["The first document, with an é.", "The second document.", "A third,\nof two lines."]
JSONL = "".join(json.dumps({"text": text, "meta": {"source": "test"}}) + "\n" for text in DOCUMENTS).encode()


def corpus_of(text: str) -> Corpus:
    return Corpus("made", text, "0" * 64, 1)


def zstd(content: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(content)


def test_default_is_the_documentation_inside_python() -> None:
    corpus = load_corpus()
    assert len(corpus.text) > 300_000
    assert "assert" in corpus.text
    assert corpus.name.startswith("python-docs-3.")
    assert corpus == load_corpus(), "the same text in the same order each time"


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", bytes), (".gz", gzip.compress), (".zst", zstd), (".zst", lambda c: zstd(c[:9]) + zstd(c[9:]))],
)
@pytest.mark.parametrize("kind", [".txt", ".jsonl"])
def test_every_form_gives_the_same_text(tmp_path: Path, kind: str, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    content = SEPARATOR.join(DOCUMENTS).encode() if kind == ".txt" else JSONL
    path = tmp_path / f"train{kind}{suffix}"
    path.write_bytes(pack(content))
    corpus = load_corpus(path)
    assert corpus.text == SEPARATOR.join(DOCUMENTS)
    assert corpus.name == path.name
    assert corpus.sha256 == load_corpus(path).sha256
    assert corpus.skipped == 0


def test_folder_is_read_recursively_in_sorted_order(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "one.txt").write_bytes("\ufeffthird".encode())  # a byte order mark is no text
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "first"}\n{"text": " "}\n{"text": "second"}\n'))
    (tmp_path / "notes.md").write_text("not taken")
    corpus = load_corpus(tmp_path)
    assert corpus.text == SEPARATOR.join(["first", "second", "third"])
    assert corpus.documents == 3


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "cut of', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'["text"]', "no string field 'text'"),
        (b'{"text": 3}', "no string field 'text'"),
        (b'{"text": "\xff"}', "not UTF-8"),
        (b'{"text": "\\ud800"}', "half a surrogate pair"),
    ],
)
def test_broken_line_is_skipped_and_counted(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(JSONL + b"\n" + line + b"\n")
    corpus = load_corpus(path)
    assert corpus.text == SEPARATOR.join(DOCUMENTS)
    assert (corpus.skipped, corpus.documents) == (1, 3)
    assert corpus.first_skipped == f"{path}:5 ({reason})"


@pytest.mark.parametrize(
    ("good", "broken", "accepted"),
    [
        (1, BROKEN_LINES_ALLOWED, True),  # a large share, but few
        (1, BROKEN_LINES_ALLOWED + 1, False),
        (100 * BROKEN_LINES_ALLOWED, BROKEN_LINES_ALLOWED + 1, False),  # 11 of 1,011 lines: 1.09%
        (1_200, BROKEN_LINES_ALLOWED + 1, True),  # more than 10, but 0.9%
    ],
)
def test_limit_of_broken_lines(tmp_path: Path, good: int, broken: int, accepted: bool) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(b'{"text": "good"}\n' * good + b"{\n" * broken)
    if accepted:
        assert load_corpus(path).skipped == broken
        return
    message = refusal(load_corpus, path)
    assert f"{broken} of {good + broken} lines are broken" in message
    assert f"{path}:{good + 1} (not JSON)" in message


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("empty.txt", b"", "holds no text"),
        ("blank.txt", b" \n\n ", "holds no text"),
        ("empty.txt.gz", b"", "holds no text"),
        ("none.jsonl", b"{\n{\n", "holds no text; 2 broken lines, the first at"),
        ("binary.txt", b"abc\0def", "zero byte at offset 3"),
        ("latin.txt", b"caf\xe9 noir", "not UTF-8 text: byte 0xe9 at offset 3"),
        ("short.txt.gz", gzip.compress(b"abcdef" * 99, mtime=0)[:-9], "cut short"),
        ("text.txt.gz", b"no gzip at all", "damaged or not gzip"),
        ("torn.txt.gz", gzip.compress(b"abcdef" * 99, mtime=0)[:-8] + b"\0" * 8, "damaged or not gzip"),
        ("short.txt.zst", zstd(b"abcdef" * 99)[:-3], "cut short"),
        ("second.txt.zst", zstd(b"abcdef") + zstd(b"abcdef" * 99)[:-3], "cut short"),
        ("text.txt.zst", b"no zstd at all", "damaged or not zstd"),
        ("text.csv", b"a,b", "not of a kind that can be read: a .txt or .jsonl"),
    ],
)
def test_bad_file_is_one_clear_line(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    message = refusal(load_corpus, path)
    assert expected in message
    assert str(path) in message


def test_paths_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    assert refusal(load_corpus, path) == f"corpus {path} does not exist"
    assert "holds no file that can be read" in refusal(load_corpus, tmp_path)
    path.write_text("abc")
    monkeypatch.setattr(Path, "read_bytes", raising(PermissionError(13, "Permission denied")))
    assert refusal(load_corpus, path) == f"corpus {path} cannot be read: Permission denied"


def test_samples_follow_one_another_and_are_cut_at_white_space() -> None:
    corpus = load_corpus()
    samples = Samples(corpus, 700, 8)
    parts = list(samples)
    assert "".join(parts) == corpus.text
    assert all(350 <= len(part) <= 700 for part in parts[:-1])
    assert all(part[-1].isspace() for part in parts[:-1])
    assert samples.longest == max(map(len, parts))


def test_cutting_short_texts() -> None:
    samples = Samples(corpus_of("aaa bbb ccc "), 4, 2)
    assert (len(samples), samples.groups) == (3, 2)
    assert [samples.group(number) for number in range(2)] == [["aaa ", "bbb "], ["ccc "]]
    solid, blank = Samples(corpus_of("x" * 25), 10), Samples(corpus_of("aaa" + " " * 50 + "bbb"), 4)
    assert list(solid) == ["x" * 10, "x" * 10, "x" * 5]
    assert all(sample.strip() for sample in blank), "blanks make no sample"


def test_sizes_that_give_no_chunk() -> None:
    with pytest.raises(TrainerError, match=r"8 samples of 700 characters need 5600 characters of text, it has 4000"):
        Samples(corpus_of("word " * 800), 700, 8)
    Samples(corpus_of("word " * 1120), 700, 8)  # 5,600 characters are enough


def test_repeated_paragraphs_are_left_out() -> None:
    """Documents of the built-in corpus contain each other. Headings and short lines stay, although they recur."""
    long, other = "a" * 80, "b" * 200
    documents = [f"Title\n\n{long}\n\n{other}", f"Title\n\n{other}\n\nnew", long]
    assert without_repeated_paragraphs(documents) == [documents[0], "Title\n\nnew", ""]
