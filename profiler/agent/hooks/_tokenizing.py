"""How a tokenizer's method is watched, whatever library it is of: the outermost call counts, once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from profiler.agent.hooks import _syncs
from profiler.agent.patching import STATE, caller, patch
from profiler.agent.recorder import Region
from profiler.run.tables import TOKENIZED

Texts = Callable[[tuple[Any, ...], dict[str, Any]], int]
"""How many texts a call turns into tokens, from its arguments without self."""


class _Tokenizing(threading.local):
    """Whether this thread is inside of a tokenizer: one library calls another."""

    def __init__(self) -> None:
        self.now = False


_tokenizing: Final = _Tokenizing()


def one_text(_args: tuple[Any, ...], _named: dict[str, Any]) -> int:
    """For methods that take one text."""
    return 1


def texts_of(name: str) -> Texts:
    """For methods whose first argument, or the one called `name`, is one text or a list of them."""

    def count(args: tuple[Any, ...], named: dict[str, Any]) -> int:
        given = args[0] if args else named.get(name)
        pretokenized = bool(named.get("is_split_into_words"))  # a text is a list of words then
        if isinstance(given, (list, tuple)) and not (pretokenized and given and isinstance(given[0], str)):
            return len(given)
        return 1

    return count


def watch(owner: Any, method: str, texts: Texts) -> None:
    """Region `tokenize` around `owner.method`, counter `tokenized` and its lines; without such a method, nothing."""
    if callable(getattr(owner, method, None)):
        patch(owner, method, lambda original: _watched(original, texts))


def _watched(original: Callable[..., Any], texts: Texts) -> Callable[..., Any]:
    def tokenize(self: Any, *args: Any, **named: Any) -> Any:
        recorder, here = STATE.recorder, _tokenizing
        if recorder is None or here.now:
            return original(self, *args, **named)
        number = texts(args, named)
        recorder.count(TOKENIZED, number)
        here.now = True
        try:
            if not recorder.detailed:
                return original(self, *args, **named)
            recorder.instant(TOKENIZED, size=number, site=_syncs.site(recorder, caller(1)))
            with Region(recorder, "tokenize"):
                return original(self, *args, **named)
        finally:
            here.now = False

    return tokenize
