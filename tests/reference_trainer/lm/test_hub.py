"""A data set by name as corpus, on local folders: nothing goes over the network; faults are one line."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

from reference_trainer.errors import USAGE, TrainerError
from reference_trainer.lm import documents
from reference_trainer.lm.corpus import SEPARATOR, Corpus, load_corpus
from reference_trainer.lm.documents import BROKEN_LINES_ALLOWED

DOCUMENTS = ["The first document, with an é.", "The second document.", "A third,\nof two lines."]


@pytest.fixture(scope="module", autouse=True)
def library():
    """The library, which tests/conftest.py told to stay offline before anything imported it."""
    return pytest.importorskip("datasets", reason="the extra hub is not installed")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch):
    """Whatever the library was told: what it tried."""
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


def load(name: str, **more: int) -> Corpus:
    """As the command line does, where argparse makes a path of every corpus."""
    return load_corpus(Path(f"hub:{name}"), **more)


def fault(name: str) -> str:
    with pytest.raises(TrainerError) as caught:
        load(name)
    assert caught.value.exit_code == USAGE
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_documents_in_order(tmp_path: Path) -> None:
    corpus = load(str(folder(tmp_path, *texts(DOCUMENTS[0], " ", *DOCUMENTS[1:]))))
    assert corpus.text == SEPARATOR.join(DOCUMENTS)
    assert (corpus.documents, corpus.skipped) == (3, 0)
    assert corpus.name == "set:train", "without the folders of one machine"


def test_same_text_as_of_the_files_themselves(tmp_path: Path) -> None:
    path = folder(tmp_path, *texts(*DOCUMENTS))
    assert load(str(path)).sha256 == load_corpus(path).sha256


def test_split_and_field(tmp_path: Path) -> None:
    path = folder(tmp_path, {"text": "a", "body": "b"})
    folder(tmp_path, {"text": "c", "body": "d"}, split="test")
    assert [load(f"{path}{more}").text for more in ("", ":test", ":test:body", "::body")] == ["a", "c", "d", "b"]


@pytest.mark.parametrize(
    ("largest", "text"),
    [(9, "aaaa\n\nbbb"), (8, "aaaa\n\nbb"), (6, "aaaa"), (5, "aaaa"), (4, "aaaa"), (2, "aa")],
)
def test_cut_at_so_many_characters_and_said(tmp_path: Path, largest: int, text: str) -> None:
    path = folder(tmp_path, *texts("aaaa", "bbbb", "cccc"))
    corpus = load(str(path), hub_chars=largest)
    assert corpus.text == text
    assert corpus.name == f"set:train, first {largest} characters"


def test_not_cut_where_it_ends_by_itself(tmp_path: Path) -> None:
    corpus = load(str(folder(tmp_path, *texts("aaaa", "bbbb", "  "))), hub_chars=10)
    assert (corpus.text, corpus.name) == ("aaaa\n\nbbbb", "set:train")


def test_only_what_is_taken_is_read(tmp_path: Path, library, monkeypatch: pytest.MonkeyPatch) -> None:
    observed: list[int] = []

    def stream(*_: object, **options: object):
        assert options["streaming"] is True
        for number in range(1_000):
            observed.append(number)
            yield {"text": "x" * 10}

    monkeypatch.setattr(library, "load_dataset", stream)
    assert len(load("someone/endless", hub_chars=33).text) == 33
    assert observed == [0, 1, 2]


def test_name_of_the_hub(library, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[object] = []

    def stream(*arguments: object, **options: object):
        requested.append((arguments, options))
        return texts("a")

    monkeypatch.setattr(library, "load_dataset", stream)
    assert load("allenai/c4@en:validation").name == "allenai/c4@en:validation"
    assert load("someone/thing").name == "someone/thing:train"
    assert requested == [
        (("allenai/c4", "en"), {"split": "validation", "streaming": True}),
        (("someone/thing", None), {"split": "train", "streaming": True}),
    ]


def test_records_without_a_text_are_skipped_and_counted(tmp_path: Path) -> None:
    path = folder(tmp_path, *texts("a", None, "b"))
    corpus = load(str(path))
    assert (corpus.text, corpus.skipped) == ("a\n\nb", 1)
    assert corpus.first_skipped == f"record 2 of {path} (no string field 'text')"


def test_too_many_of_them(tmp_path: Path) -> None:
    broken = BROKEN_LINES_ALLOWED + 1
    message = fault(str(folder(tmp_path, *texts("a", *[None] * broken))))
    assert f"{broken} of {broken + 1} lines are broken" in message


@pytest.mark.parametrize(
    ("name", "statement"),
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
def test_bad_name_is_one_line(tmp_path: Path, name: str, statement: str) -> None:
    path = folder(tmp_path, {"text": "a", "number": 1})
    assert statement in fault(name.format(path=path))


def test_damaged_file_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = folder(tmp_path, *texts("a"))
    with open(path / "train.jsonl", "a", encoding="utf-8") as file:
        file.write("{no json\n")
    assert "cannot be read" in fault(str(path))
    assert capfd.readouterr().err == "", "the library says nothing of its own beside it"


def test_connection_lost_while_reading(library, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's HTTP client has errors of its own, which nobody translates."""
    errors = documents._transport_errors()
    assert errors, "no HTTP client is known of this version of the library"

    def stream(*_: object, **__: object):
        yield {"text": "a"}
        raise errors[0]("connection reset\nby peer")

    monkeypatch.setattr(library, "load_dataset", stream)
    assert fault("someone/thing").endswith(": connection reset by peer")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    message = "a corpus hub:... needs the library datasets: pip install 'training-profiler[hub]'"
    assert fault("someone/thing") == message
