"""Tokenizers of three libraries: one region and one count for the outermost call, results as before."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from profiler.agent.hooks.regions import TOKENIZERS, count_texts
from profiler.agent.patching import STATE
from profiler.run.tables import TOKENIZED
from tests.fakes.watched import counted, regions, watched


def rust() -> tuple[ModuleType, Any]:
    """The library, and a tokenizer of two words."""
    library = pytest.importorskip("tokenizers")
    made = library.Tokenizer(library.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    return library, made


def test_each_way_of_encoding_is_one_region_and_has_its_line(tmp_path: Path) -> None:
    library, tokenizer = rust()
    with watched(tmp_path, (TOKENIZERS, library)) as loaded:
        assert tokenizer.encode("a b").ids == [0, 1]
        assert [one.ids for one in tokenizer.encode_batch(["a", "b c"])] == [[0], [1, 2]]
        assert len(tokenizer.encode_batch_fast(input=["a", "b", "b"])) == 3
        assert counted(STATE.recorder, "tokenized") == 6
        run = loaded()
        assert regions(run) == ["tokenize"] * 3
        assert [run.names[name] for name in run.calls["name"]] == [TOKENIZED] * 3
        assert run.calls["bytes"].tolist() == [1, 2, 3], "how many texts at each line"
        assert (run.calls["begin"] == run.calls["end"]).all(), "no part of a step is taken from the region"
        assert {run.sites[site].function for site in run.calls["site"]} == {
            "test_each_way_of_encoding_is_one_region_and_has_its_line"
        }


def test_light_counts_and_takes_no_times(tmp_path: Path) -> None:
    library, tokenizer = rust()
    with watched(tmp_path, (TOKENIZERS, library), level="light") as loaded:
        tokenizer.encode_batch(["a", "b"])
        assert counted(STATE.recorder, "tokenized") == 2
        assert not len(loaded().regions)
        assert not len(loaded().calls)


def test_transformers_counts_texts_and_not_what_it_calls(tmp_path: Path) -> None:
    library, tokenizer = rust()
    base = pytest.importorskip("transformers.tokenization_utils_base")
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?")
    with watched(tmp_path, (TOKENIZERS, library), (TOKENIZERS, base)) as loaded:
        assert fast("a b")["input_ids"] == [0, 1]
        assert fast(["a", "b", "a"])["input_ids"] == [[0], [1], [0]]
        assert fast.encode("b") == [1]
        assert fast(["a", "b"], is_split_into_words=True)["input_ids"] == [0, 1]
        assert counted(STATE.recorder, "tokenized") == 6
        assert regions(loaded()) == ["tokenize"] * 4


def test_sentencepiece_in_both_ways_of_writing(tmp_path: Path) -> None:
    library = pytest.importorskip("sentencepiece")
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"word number {n} of some text\n" for n in range(200)))
    library.SentencePieceTrainer.Train(
        input=str(corpus), model_prefix=str(tmp_path / "m"), vocab_size=40, minloglevel=2
    )
    processor = library.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    plain = processor.encode("some text"), processor.encode_as_pieces("some text")
    with watched(tmp_path, (TOKENIZERS, library)) as loaded:
        assert (processor.encode("some text"), processor.encode_as_pieces("some text")) == plain
        processor.Encode(["a", "b", "c"])
        assert counted(STATE.recorder, "tokenized") == 5
        assert regions(loaded()) == ["tokenize"] * 3


def test_an_error_leaves_the_watch_open_for_the_next_call(tmp_path: Path) -> None:
    library, tokenizer = rust()
    with watched(tmp_path, (TOKENIZERS, library)) as loaded:
        with pytest.raises(TypeError):
            tokenizer.encode(7)
        tokenizer.encode("a")
        assert regions(loaded()) == ["tokenize"] * 2


@pytest.mark.parametrize(
    ("given", "named", "count"),
    [("a b", {}, 1), (["a", "b"], {}, 2), ([], {}, 0), (["a", "b"], {"is_split_into_words": True}, 1),
     ([["a"], ["b"], ["c"]], {"is_split_into_words": True}, 3)],
)  # fmt: skip
def test_texts_of_a_call(given: Any, named: dict[str, Any], count: int) -> None:
    assert count_texts("text")((given,), named) == count
    assert count_texts("text")((), {"text": given, **named}) == count
