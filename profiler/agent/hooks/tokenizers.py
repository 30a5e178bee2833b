"""Hugging Face tokenizers: its Tokenizer is a type of Rust's, and takes new methods all the same."""

from __future__ import annotations

from types import ModuleType
from typing import ClassVar

from profiler.agent.hooks._tokenizing import one_text, texts_of, watch


class Tokenizers:
    """Region `tokenize` and counter `tokenized` for texts that are encoded."""

    name: ClassVar[str] = "tokenizers"
    modules: ClassVar[tuple[str, ...]] = ("tokenizers",)
    levels: ClassVar[tuple[str, ...]] = ("light", "standard", "full")

    def install(self, module: ModuleType) -> None:
        """Its asynchronous methods are left alone: they return before the work is done."""
        watch(module.Tokenizer, "encode", one_text)
        for method in ("encode_batch", "encode_batch_fast"):
            watch(module.Tokenizer, method, texts_of("input"))


PLUGIN = Tokenizers()
