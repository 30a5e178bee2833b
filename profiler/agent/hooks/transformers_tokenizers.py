"""Hugging Face transformers: calls of its tokenizers, Python or Rust below."""

from __future__ import annotations

from types import ModuleType
from typing import ClassVar

from profiler.agent.hooks._tokenizing import one_text, texts_of, watch


class TransformersTokenizers:
    """Region `tokenize` and counter `tokenized` for texts that are encoded."""

    name: ClassVar[str] = "transformers-tokenizers"
    modules: ClassVar[tuple[str, ...]] = ("transformers.tokenization_utils_base",)
    levels: ClassVar[tuple[str, ...]] = ("light", "standard", "full")

    def install(self, module: ModuleType) -> None:
        """Which methods there are differs between versions."""
        base = module.PreTrainedTokenizerBase
        watch(base, "__call__", texts_of("text"))
        watch(base, "encode", one_text)
        watch(base, "encode_plus", one_text)
        watch(base, "batch_encode_plus", texts_of("batch_text_or_text_pairs"))


PLUGIN = TransformersTokenizers()
