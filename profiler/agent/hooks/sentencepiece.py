"""SentencePiece: every method of its processor that turns text into pieces, in both ways of writing their names."""

from __future__ import annotations

import re
from types import ModuleType
from typing import ClassVar, Final

from profiler.agent.hooks._tokenizing import texts_of, watch

_ENCODES: Final = re.compile(r"(nbest_?|sample_?|parallel_?)?encode|tokenize", re.IGNORECASE)


class SentencePiece:
    """Region `tokenize` and counter `tokenized` for texts that are encoded."""

    name: ClassVar[str] = "sentencepiece"
    modules: ClassVar[tuple[str, ...]] = ("sentencepiece",)
    levels: ClassVar[tuple[str, ...]] = ("light", "standard", "full")

    def install(self, module: ModuleType) -> None:
        """Which methods there are differs between versions."""
        for method in dir(module.SentencePieceProcessor):
            if _ENCODES.match(method):
                watch(module.SentencePieceProcessor, method, texts_of("input"))


PLUGIN = SentencePiece()
