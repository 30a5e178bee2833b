"""Tokenizers of Hugging Face tokenizers, transformers and SentencePiece: time and number of the texts they encode.

Region `tokenize` and counter `tokenized`. One library may call another: only the outermost call counts. Asynchronous
methods are left alone, because they return before the work is done.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, Final

from profiler.agent.hooks import _syncs
from profiler.agent.patching import STATE, Hook, caller, patch
from profiler.agent.recorder import ClockedRegion
from profiler.run.tables import TOKENIZED

TextCount = Callable[[tuple[Any, ...], dict[str, Any]], int]
"""Counts the texts that a call encodes, from its arguments without self."""

_SENTENCEPIECE_METHODS: Final = re.compile(r"(nbest_?|sample_?|parallel_?)?encode|tokenize", re.IGNORECASE)
"""Both styles, EncodeAsIds and encode_as_ids, match; versions of the library differ in which they have."""


class _Thread(threading.local):
    tokenizing = False


_thread: Final = _Thread()


def _one_text(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> int:
    return 1


def count_texts(parameter: str) -> TextCount:
    """Count the texts of a call whose first argument, or the one called `parameter`, is a text or a list of texts."""

    def count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        texts = args[0] if args else kwargs.get(parameter)
        pretokenized = bool(kwargs.get("is_split_into_words"))  # one text is then a list of words
        if isinstance(texts, (list, tuple)) and not (pretokenized and texts and isinstance(texts[0], str)):
            return len(texts)
        return 1

    return count


def _recorded(original: Callable[..., Any], count: TextCount) -> Callable[..., Any]:
    def tokenize(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder, thread = STATE.recorder, _thread
        if recorder is None or thread.tokenizing:
            return original(self, *args, **kwargs)
        texts = count(args, kwargs)
        recorder.count(TOKENIZED, texts)
        thread.tokenizing = True
        try:
            if not recorder.detailed:
                return original(self, *args, **kwargs)
            recorder.instant(TOKENIZED, size=texts, site=_syncs.site(recorder, caller(1)))
            with ClockedRegion(recorder, "tokenize"):
                return original(self, *args, **kwargs)
        finally:
            thread.tokenizing = False

    return tokenize


_METHODS: Final[dict[str, tuple[str, dict[str, TextCount]]]] = {
    "tokenizers": (
        "Tokenizer",
        {"encode": _one_text, "encode_batch": count_texts("input"), "encode_batch_fast": count_texts("input")},
    ),
    "transformers.tokenization_utils_base": (
        "PreTrainedTokenizerBase",
        {
            "__call__": count_texts("text"),
            "encode": _one_text,
            "encode_plus": _one_text,
            "batch_encode_plus": count_texts("batch_text_or_text_pairs"),
        },
    ),
}
"""For each module a class, and its methods with functions that count their texts. A library may lack some of them."""


def _install(module: ModuleType) -> None:
    kind, counts = _METHODS[module.__name__]
    _patch_methods(getattr(module, kind), counts)


def _install_sentencepiece(module: Any) -> None:
    kind = module.SentencePieceProcessor
    _patch_methods(kind, {name: count_texts("input") for name in dir(kind) if _SENTENCEPIECE_METHODS.match(name)})


def _patch_methods(owner: Any, counts: dict[str, TextCount]) -> None:
    for method, count in counts.items():
        if callable(getattr(owner, method, None)):
            patch(owner, method, partial(_recorded, count=count))


PLUGIN = Hook("tokenizers", {**dict.fromkeys(_METHODS, _install), "sentencepiece": _install_sentencepiece})
