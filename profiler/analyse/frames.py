"""What a stack says of itself: the user's line, what that calls, the recorded stretch around it, the part of a step.

A sampler's clock is good to milliseconds, so where a sample lies is read off its frames and never off its time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from profiler.analyse.places import COMPILED, LIBRARY, OURS, TORCH, USER, USUAL, Places, kind_of, relative
from profiler.run.model import Site

__all__ = ["LIBRARY", "OURS", "TORCH", "USER", "Stack", "kind_of", "read_stack", "relative"]

DATA, BACKWARD, OPTIMIZER, TOKENIZE, CHECKPOINT = "data", "backward", "optimizer", "tokenize", "checkpoint"
"""Names of regions that hooks write, and so of what covers a sample."""
CALL: Final = "call"
"""Covered by a hook around a single call that may wait for the device."""
COPY: Final = "copy"
"""The same around one that may copy."""
FORWARD, BETWEEN = "forward", "between"

_HOOKS: Final = ("/agent/hooks/", "/inside/hooks/")  # the second one in runs recorded by version 0.1
_DOING: Final = (
    ("log", re.compile(r"(^|/)(logging|tqdm|tensorboard|tensorboardX|wandb|mlflow|comet_ml|neptune|aim|clearml)/")),
    ("log", re.compile(r"^(torch/utils/tensorboard/|(pytorch_lightning|lightning/pytorch|lightning/fabric)/loggers/)")),
    ("log", re.compile(r"^((pytorch_lightning|lightning/pytorch)/callbacks/progress/|ipykernel/iostream\.py|rich/)")),
    ("checkpoint", re.compile(r"^(torch/serialization\.py|torch/distributed/checkpoint/|safetensors/)")),
    ("input", re.compile(r"^(datasets|tokenizers|sentencepiece|tiktoken|webdataset|PIL|albumentations|torchaudio)/")),
    ("input", re.compile(r"^(torch/utils/data/|torchvision/(transforms|datasets|io)/)")),
    ("input", re.compile(r"^transformers/(tokenization_|data/)")),
    ("sync", re.compile(r"^torch/(cuda/streams|distributed/distributed_c10d)\.py")),
)
"""What library code does by its place below the packages' folder: categories of the host."""
_PASSES_ON: Final = ("__iter__", "__next__", "track")
"""Functions of progress bars that only hand the next item on: what runs below them is not logging."""
_CLOSURES: Final = ("closure", "closure_fn", "wrap_closure", "_wrap_closure", "wrapped_closure")
"""Names under which an optimizer calls back the model's own step."""
_NOTES: Final = "torch/autograd/profiler.py", ("__init__", "__enter__", "__exit__")
"""With these torch notes the name of a step of an optimizer, before its hooks begin and after they end: some 30 µs, the
optimizer's, but not in what is recorded of it."""
_TIMED_CLOSURE: Final = (("/optimizers.py", "/_optimizer_steps.py"), ("closed", "end"))
"""Our frames around such a call, and at the end of a step: what runs below them is not recorded as the optimizer's."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack, read."""

    site: Site
    """The innermost line of the user's own code; without any, the outermost frame."""
    calls: str
    """The innermost library function below that line (of an import: what is imported); empty: the line itself."""
    cover: str
    """The innermost kind of stretch that hooks record exactly: DATA, BACKWARD, ...; empty: none."""
    doing: str
    """Host category that library frames inside of the cover stand for: log, checkpoint, input; empty: none."""
    torch: bool
    """Whether the innermost frame is torch's own Python."""
    covers: tuple[tuple[str, str], ...]
    """All stretches around it, from the inside out, with what library frames within each stand for; '' comes last."""
    phase: str
    """DATA, FORWARD, BACKWARD, OPTIMIZER or BETWEEN."""
    in_optimizer: bool
    """Whether what is recorded of an optimizer's step is around it: closures run the model inside of it."""


class _Frame(NamedTuple):
    kind: str
    cover: str
    doing: str
    asks: bool
    """Whether the user's code that it calls does that for it: makes data, formats a record."""
    passes_on: bool
    model: bool
    closure: bool
    timed: bool
    notes: bool


@lru_cache(maxsize=1 << 16)
def _frame(file: str, function: str, places: Places) -> _Frame:
    kind, path, name = kind_of(file, places), relative(file, places), function.rpartition(".")[2]
    if file == "<string>" and name.startswith("__"):
        kind = LIBRARY  # what dataclasses and named tuples make; of `python -c` it is the user's
    doing = ""
    if kind in (TORCH, LIBRARY):
        doing = next((category for category, pattern in _DOING if pattern.search(path)), "")
    model = path == "torch/nn/modules/module.py" and name in ("_call_impl", "_wrapped_call_impl")
    model = model or path == "torch/_dynamo/eval_frame.py"
    passes_on = doing == "log" and name in _PASSES_ON
    timed = kind == OURS and file.endswith(_TIMED_CLOSURE[0]) and name in _TIMED_CLOSURE[1]
    notes = path == _NOTES[0] and name in _NOTES[1]
    cover = _cover(kind, file if kind == OURS else path, function)
    asks = doing == "input" or path.startswith("logging/")
    return _Frame(kind, cover, doing, asks, passes_on, model, name in _CLOSURES, timed, notes)


def _cover(kind: str, path: str, function: str) -> str:
    name = function.rpartition(".")[2]
    if kind == OURS:
        stem = PurePosixPath(path).stem if any(folder in path for folder in _HOOKS) else ""
        return _HOOK_COVERS.get(stem) or _HOOK_COVERS.get(f"{stem}.{function.partition('.')[0]}", "")
    if path == "torch/utils/data/dataloader.py" and name in ("__next__", "__iter__"):
        return DATA
    if path == "torch/autograd/__init__.py" and name in ("backward", "grad"):
        return BACKWARD
    if path == "torch/optim/optimizer.py" and name == "wrapper":
        return OPTIMIZER
    return CHECKPOINT if path == "torch/serialization.py" and name == "save" else ""


_HOOK_COVERS: Final = {
    "loader": DATA,
    "datasets": DATA,
    "tokenizers": TOKENIZE,
    "_tokenizing": TOKENIZE,
    "checkpoints": CHECKPOINT,
    "backward": BACKWARD,
    "functions._waiting": CALL,
    "functions._explicit": CALL,
    "tensors._leaf": CALL,
    "tensors._waiting": CALL,
    "tensors._copying": COPY,
    "tensors.repeating": CALL,
}
"""Hooks whose frame lies around what they record, by file (and the function that made them): what they call may be
native, and then leaves no frame of its own."""


def read_stack(frames: tuple[Site, ...], places: Places = USUAL) -> Stack:
    """What `frames` say, which come outermost first."""
    known = [_frame(site.file, site.function, places) for site in frames]
    if not frames:
        return Stack(Site("", 0, ""), "", "", "", False, (("", ""),), BETWEEN, False)
    leaf = len(frames) - 1
    user = next((number for number in range(leaf, -1, -1) if known[number].kind == USER), None)
    covers = _around(known)
    cover, doing = covers[0]
    phase, in_optimizer = _phase(known)
    site = frames[0] if user is None else frames[user]
    calls = _calls(frames[0 if user is None else user + 1 :], places)
    return Stack(site, calls, cover, doing, known[leaf].kind == TORCH, covers, phase, in_optimizer)


def _around(known: Sequence[_Frame]) -> tuple[tuple[str, str], ...]:
    """The covers from the inside out, each with what library frames inside of it do.

    Libraries call the user's code too: an agent that tunes runs the whole training. So what is outside of the user's
    innermost frame, or of a model, says nothing; but who makes data or records calls the user to do just that.
    """
    found, doing, outside = [], "", False
    for number in range(len(known) - 1, -1, -1):
        frame = known[number]
        if frame.timed or (frame.notes and number and known[number - 1].cover == OPTIMIZER):
            break
        outside = outside or frame.kind == USER or frame.model
        if frame.cover:
            found.append((frame.cover, doing))
        elif not doing and frame.doing and (not frame.passes_on or number == len(known) - 1):
            doing = frame.doing if frame.asks or not outside else ""
    return (*found, ("", doing))


def _phase(known: Iterable[_Frame]) -> tuple[str, bool]:
    """Data and backward over all, as they are recorded exactly; a model that an optimizer calls back is forward."""
    phase, in_optimizer = BETWEEN, False
    above = None
    for frame in known:
        if frame.notes and above is not None and above.cover == OPTIMIZER:
            in_optimizer = False
        above = frame
        if frame.cover in (DATA, BACKWARD):
            return frame.cover, in_optimizer
        if frame.cover == OPTIMIZER:
            phase, in_optimizer = OPTIMIZER, True
        elif frame.model:
            phase = FORWARD
        elif frame.timed:
            phase, in_optimizer = BETWEEN, False
        elif frame.closure and phase == OPTIMIZER:
            phase = BETWEEN
    return phase, in_optimizer


def _calls(frames: tuple[Site, ...], places: Places) -> str:
    """The innermost function of `frames` that is not ours, as module.function; of an import what is imported."""
    importing = False
    for site in frames:
        importing = importing or site.file.startswith("<frozen importlib")
        if importing and not site.file.startswith("<"):
            return f"import {_module(site.file, places).partition('.')[0]}"
    for site in reversed(frames):
        if kind_of(site.file, places) != OURS:
            return f"{_module(site.file, places)}.{site.function}".lstrip(".")
    return ""


def _module(file: str, places: Places) -> str:
    if file.startswith("<frozen "):
        return file[len("<frozen ") :].rstrip(">")
    if file.startswith("<") or COMPILED in file:
        return "compiled" if COMPILED in file else ""
    path = PurePosixPath(relative(file, places))
    parts = [part for part in path.with_suffix("").parts if part != "/"]
    if parts and parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts if not path.is_absolute() else parts[-1:])
