"""A data set by name as corpus, in local folders: nothing goes over the network; faults are one line."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

from reference_trainer.lm import documents
from reference_trainer.lm.corpus import Corpus, load_corpus
from reference_trainer.lm.documents import BROKEN_LINES_ALLOWED
from tests.reference_trainer.processes import refusal


@pytest.fixture(scope="module", autouse=True)
def library():
    """The library, which tests/conftest.py told to stay offline before anything imported it."""
    return pytest.importorskip("datasets", reason="the extra hub is not installed")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch):
    """Fail if anything tries to connect, whatever the library's settings are."""
    tried: list[object] = []

    def refuse(*arguments: object, **_: object) -> None:
        tried.append(arguments)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield
    assert not tried


def folder(tmp_path: Path, *records: object, split: str = "train") -> Path:
    path = tmp_path / "set"
    path.mkdir(exist_ok=True)
    (path / f"{split}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def texts(*documents: str | None) -> list[dict[str, str | None]]:
    return [{"text": text} for text in documents]


def load(name: object, **more: int) -> Corpus:
    """Load it as the command line does, where argparse makes a path of every corpus."""
    return load_corpus(Path(f"hub:{name}"), **more)


def test_documents_in_order(tmp_path: Path) -> None:
    path = folder(tmp_path, *texts("The first, with an é.", " ", "A second.", None, "A third,\nof two lines."))
    corpus = load(path)
    assert corpus.text == "The first, with an é.\n\nA second.\n\nA third,\nof two lines."
    assert (corpus.documents, corpus.skipped) == (3, 1)
    assert corpus.first_skipped == f"record 4 of {path} (no string field 'text')"
    assert corpus.name == "set:train", "without the folders of one machine"
    assert corpus.sha256 == load_corpus(path).sha256, "the same text as that of the files themselves"


def test_split_and_field(tmp_path: Path) -> None:
    path = folder(tmp_path, {"text": "a", "body": "b"})
    folder(tmp_path, {"text": "c", "body": "d"}, split="test")
    assert [load(f"{path}{more}").text for more in ("", ":test", ":test:body", "::body")] == ["a", "c", "d", "b"]


@pytest.mark.parametrize(
    ("largest", "text"),
    [(9, "aaaa\n\nbbb"), (8, "aaaa\n\nbb"), (6, "aaaa"), (5, "aaaa"), (4, "aaaa"), (2, "aa")],
)
def test_a_text_that_is_cut_says_so(tmp_path: Path, largest: int, text: str) -> None:
    corpus = load(folder(tmp_path, *texts("aaaa", "bbbb", "cccc")), hub_chars=largest)
    assert (corpus.text, corpus.name) == (text, f"set:train, first {largest} characters")
    complete = load(folder(tmp_path, *texts(text, "  ")), hub_chars=largest)
    assert (complete.text, complete.name) == (text, "set:train")


def test_only_the_used_records_of_a_set_of_the_hub_are_read(library, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[object] = []
    read: list[int] = []

    def stream(*arguments: object, **options: object):
        requested.append((arguments, options))
        for number in range(1_000):
            read.append(number)
            yield {"text": "x" * 10}

    monkeypatch.setattr(library, "load_dataset", stream)
    corpus = load("allenai/c4@en:validation", hub_chars=33)
    assert (len(corpus.text), corpus.name) == (33, "allenai/c4@en:validation, first 33 characters")
    assert read == [0, 1, 2]
    load("someone/thing", hub_chars=1)
    assert requested == [
        (("allenai/c4", "en"), {"split": "validation", "streaming": True}),
        (("someone/thing", None), {"split": "train", "streaming": True}),
    ]


def test_too_many_records_without_a_text(tmp_path: Path) -> None:
    broken = BROKEN_LINES_ALLOWED + 1
    message = refusal(load, folder(tmp_path, *texts("a", *[None] * broken)))
    assert f"{broken} of {broken + 1} lines are broken" in message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "corpus hub: names no data set: write hub:NAME"),
        (":train", "names no data set"),
        ("{path}:train:text:more", "names no data set"),
        ("{path}:test", "cannot be read (hub:NAME[@CONFIGURATION][:SPLIT[:FIELD]]): Bad split: test."),
        ("{path}@en", "BuilderConfig 'en' not found"),
        ("{path}::body", "has no field 'body', but 'text', 'number': write hub:NAME"),
        ("{path}::number", "holds no text; 1 broken lines, the first at record 1 of"),
        ("{path}/none", "cannot be read"),
        ("no-one/nothing", "cannot be read"),
    ],
)
def test_bad_name_is_one_line(tmp_path: Path, name: str, message: str) -> None:
    path = folder(tmp_path, {"text": "a", "number": 1})
    assert message in refusal(load, name.format(path=path))


def test_damaged_file_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder(tmp_path, *texts("a"))
    with open(path / "train.jsonl", "a", encoding="utf-8") as file:
        file.write("{no json\n")
    assert "cannot be read" in refusal(load, path)
    assert capfd.readouterr().err == "", "the library prints nothing of its own"


def test_connection_lost_while_reading(library, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's HTTP client has errors of its own, which the library does not translate."""
    errors = documents._transport_errors()
    assert errors, "no HTTP client is known of this version of the library"

    def stream(*_: object, **__: object):
        yield {"text": "a"}
        raise errors[0]("connection reset\nby peer")

    monkeypatch.setattr(library, "load_dataset", stream)
    assert refusal(load, "someone/thing").endswith(": connection reset by peer")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    message = "a corpus hub:... needs the library datasets: pip install 'training-profiler[hub]'"
    assert refusal(load, "someone/thing") == message
