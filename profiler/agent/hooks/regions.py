"""Records library functions as regions: checkpoints, waits for the disk, reads of Hugging Face datasets, pinning.

The map of a streamed dataset is lazy: its time is part of the reads.

Also records tokenizers of Hugging Face tokenizers, transformers and SentencePiece: region `tokenize`, and the number of
texts as the counter `tokenized`. One library may call another: only the outermost call counts. Asynchronous methods are
left alone, because they return before the work is done.
"""

from __future__ import annotations

import linecache
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

from profiler.agent.clocks import ClockedRegion, now
from profiler.agent.hooks import syncs
from profiler.agent.patching import DETAILED, STATE, Hook, caller, is_user_file, patch
from profiler.agent.recorder import Recorder
from profiler.core.syntax import Block, block_of
from profiler.run.tables import BLOCK_OF_CHECKPOINT, CALLER_OF_CHECKPOINT, LINE_OF, TOKENIZED

_FUNCTIONS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "torch": {"checkpoint": ("save", "load")},
    "os": {"fsync": ("fsync", "fdatasync")},
    "torch.distributed.checkpoint": {"checkpoint": ("save", "load")},
    "safetensors.torch": {"checkpoint": ("save_file", "load_file", "save_model", "load_model")},
    "torch.utils.data._utils.pin_memory": {"pin memory": ("pin_memory",)},
    "datasets.arrow_dataset": {
        "dataset map": ("Dataset.map",),
        "dataset": ("Dataset.__iter__", "Dataset.__getitem__", "Dataset.__getitems__"),
    },
    "datasets.iterable_dataset": {"dataset": ("IterableDataset.__iter__",)},
}
"""Module -> region -> functions whose calls are recorded as that region."""
_REQUIRED: Final = {"pin_memory", "Dataset.map", "Dataset.__iter__", "IterableDataset.__iter__"}
"""Functions that every version of their library has: without one of them the hook fails. Others may be missing."""
_OUTERMOST: Final = {"dataset": "dataset", "dataset map": "dataset", "pin memory": "pin memory"}
"""Region -> group. Of nested calls in one group, only the outermost is recorded: one way of reading a dataset uses
another, and a batch is pinned part by part."""

_MAX_CALLERS: Final = 8
"""Functions of the program from the one that makes a checkpoint outwards. Few lie within the loop of the training."""
_MAX_BLOCKS: Final = 100
"""Lines that make checkpoints whose blocks are remembered. A block takes some ms: its file is parsed."""
_blocks: Final[dict[int, tuple[CodeType, Block | None]]] = {}
"""By `id(code)` plus the instruction. The code is kept, so that its id is not reused."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.open: set[str] = set()
        """Groups (see _OUTERMOST) in which this thread has an open region."""


_thread: Final = _Thread()


def _install(module: ModuleType) -> None:
    for region, paths in _FUNCTIONS[module.__name__].items():
        for path in paths:
            owner, _, name = path.rpartition(".")
            target = attrgetter(owner)(module) if owner else module
            if path in _REQUIRED or callable(getattr(target, name, None)):
                make = _iterated if name == "__iter__" else _outermost if region in _OUTERMOST else _timed
                patch(target, name, partial(make, region))


def _timed(region: str, original: Callable[..., Any]) -> Callable[..., Any]:
    line = LINE_OF.get(region)

    def timed(*args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or not recorder.detailed:
            return original(*args, **kwargs)
        thread = recorder.thread
        if line is not None:
            recorder.instant(line, site=syncs.site(recorder, caller(1)))
            if recorder.on_mode:
                _record_callers(recorder, caller(1))
            recorder.split()
        depth = thread.depth
        thread.depth = depth + 1
        begin = now()
        try:
            return original(*args, **kwargs)
        finally:
            if line is not None:
                recorder.split()
            recorder.region(region, begin, depth)

    # samples of stacks show a frame by the name of its code, and are classified by it (analyse/sampling/frames)
    timed.__code__ = timed.__code__.replace(co_name=region, co_qualname=region)
    return timed


def _record_callers(recorder: Recorder, frame: FrameType | None) -> None:
    """Record the lines of the program that are on the stack: what their functions do belongs to the checkpoint."""
    number = 0
    while frame is not None and number < _MAX_CALLERS:
        if is_user_file(frame.f_code.co_filename):
            recorder.instant(CALLER_OF_CHECKPOINT, size=number, site=recorder.site(frame))
            block = _block(frame)
            if block is not None:
                code = frame.f_code
                first = recorder.site_of(code.co_filename, block.lines.start, code.co_qualname)
                recorder.instant(BLOCK_OF_CHECKPOINT, size=len(block.lines), site=first)
                if not block.is_whole:
                    return
            number += 1
        frame = frame.f_back


def _block(frame: FrameType) -> Block | None:
    code = frame.f_code
    key = id(code) + frame.f_lasti
    if key not in _blocks and len(_blocks) < _MAX_BLOCKS:
        linecache.checkcache(code.co_filename)
        source = "".join(linecache.getlines(code.co_filename, frame.f_globals))
        _blocks[key] = code, block_of(source, frame.f_lineno)
    return _blocks[key][1] if key in _blocks else None


def _outermost(region: str, original: Callable[..., Any]) -> Callable[..., Any]:
    timed, group = _timed(region, original), _OUTERMOST[region]

    def outermost(*args: Any, **kwargs: Any) -> Any:
        if group in _thread.open:
            return original(*args, **kwargs)
        _thread.open.add(group)
        try:
            return timed(*args, **kwargs)
        finally:
            _thread.open.discard(group)

    return outermost


def _iterated(region: str, original: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    read = _outermost(region, next)

    def iterate(self: Any) -> Iterator[Any]:
        rows = original(self)
        return rows if STATE.recorder is None or _OUTERMOST[region] in _thread.open else _timed_reads(rows, read)

    return iterate


def _timed_reads(rows: Iterator[Any], read: Callable[..., Any]) -> Iterator[Any]:
    end = object()
    while (row := read(rows, end)) is not end:
        yield row


REGIONS = Hook("regions", dict.fromkeys(_FUNCTIONS, _install), levels=DETAILED)


# ---------------------------------------------------------------- tokenizers


TextCount = Callable[[tuple[Any, ...], dict[str, Any]], int]
"""Counts the texts that a call encodes, from its arguments without self."""

_SENTENCEPIECE_METHODS: Final = re.compile(r"(nbest_?|sample_?|parallel_?)?encode|tokenize", re.IGNORECASE)
"""Both styles, EncodeAsIds and encode_as_ids, match; versions of the library differ in which they have."""


class _Tokenizing(threading.local):
    tokenizing = False


_tokenizing: Final = _Tokenizing()


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


def _tokenized(original: Callable[..., Any], count: TextCount) -> Callable[..., Any]:
    def tokenize(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder, thread = STATE.recorder, _tokenizing
        if recorder is None or thread.tokenizing:
            return original(self, *args, **kwargs)
        texts = count(args, kwargs)
        recorder.count(TOKENIZED, texts)
        thread.tokenizing = True
        try:
            if not recorder.detailed:
                return original(self, *args, **kwargs)
            recorder.instant(TOKENIZED, size=texts, site=syncs.site(recorder, caller(1)))
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
    "sentencepiece": ("SentencePieceProcessor", {}),
}
"""For each module a class, and its methods with functions that count their texts, none for those of
_SENTENCEPIECE_METHODS. A library may lack some of them."""


def _install_tokenizer(module: ModuleType) -> None:
    kind, counts = _METHODS[module.__name__]
    owner = getattr(module, kind)
    if not counts:
        counts = {name: count_texts("input") for name in dir(owner) if _SENTENCEPIECE_METHODS.match(name)}
    for method, count in counts.items():
        if callable(getattr(owner, method, None)):
            patch(owner, method, partial(_tokenized, count=count))


TOKENIZERS = Hook("tokenizers", dict.fromkeys(_METHODS, _install_tokenizer))


PLUGINS = (REGIONS, TOKENIZERS)
