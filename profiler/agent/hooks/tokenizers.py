"""Tokenizers of Hugging Face tokenizers, transformers and SentencePiece: time and number of the texts they encode.

One library may call another: only the outermost call counts.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar, Final

from profiler.agent.hooks import _syncs
from profiler.agent.patching import STATE, caller, patch
from profiler.agent.recorder import Region
from profiler.run.tables import TOKENIZED

TextCount = Callable[[tuple[Any, ...], dict[str, Any]], int]
"""How many texts a call encodes, from its arguments without self."""

_SENTENCEPIECE_METHODS: Final = re.compile(r"(nbest_?|sample_?|parallel_?)?encode|tokenize", re.IGNORECASE)
"""In both styles, EncodeAsIds and encode_as_ids; versions differ in which there are."""


class Tokenizers:
    """Region `tokenize` and counter `tokenized` for texts that are encoded."""

    name: ClassVar[str] = "tokenizers"
    modules: ClassVar[tuple[str, ...]] = ("tokenizers", "transformers.tokenization_utils_base", "sentencepiece")
    levels: ClassVar[tuple[str, ...]] = ("light", "standard", "full")

    def install(self, module: ModuleType) -> None:
        """Asynchronous methods are left alone: they return before the work is done."""
        if module.__name__ == "sentencepiece":
            for method in dir(module.SentencePieceProcessor):
                if _SENTENCEPIECE_METHODS.match(method):
                    _patch_method(module.SentencePieceProcessor, method, count_texts("input"))
        elif module.__name__ == "tokenizers":
            _patch_method(module.Tokenizer, "encode", _one_text)
            _patch_method(module.Tokenizer, "encode_batch", count_texts("input"))
            _patch_method(module.Tokenizer, "encode_batch_fast", count_texts("input"))
        else:
            base = module.PreTrainedTokenizerBase
            _patch_method(base, "__call__", count_texts("text"))
            _patch_method(base, "encode", _one_text)
            _patch_method(base, "encode_plus", _one_text)
            _patch_method(base, "batch_encode_plus", count_texts("batch_text_or_text_pairs"))


class _Thread(threading.local):
    tokenizing = False


_thread: Final = _Thread()


def _one_text(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> int:
    return 1


def count_texts(parameter: str) -> TextCount:
    """For methods whose first argument, or the one called `parameter`, is a text or a list of texts."""

    def count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        texts = args[0] if args else kwargs.get(parameter)
        pretokenized = bool(kwargs.get("is_split_into_words"))  # one text is then a list of words
        if isinstance(texts, (list, tuple)) and not (pretokenized and texts and isinstance(texts[0], str)):
            return len(texts)
        return 1

    return count


def _patch_method(owner: Any, method: str, count: TextCount) -> None:
    """Patch `owner.method` where this version of the library has it."""
    if callable(getattr(owner, method, None)):
        patch(owner, method, lambda original: _recorded(original, count))


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
            with Region(recorder, "tokenize"):
                return original(self, *args, **kwargs)
        finally:
            thread.tokenizing = False

    return tokenize


PLUGIN = Tokenizers()
