"""Records torch's DataLoader in the training process: waits for batches, and the boundary at each request for one.

Region `data` around each next batch, `loader start` around each start. `receive`, within `data`, is the part that does
not wait for workers: unpacking, and fetching shared memory tensor by tensor.

A loader is named after the user's line that made it. Loaders that a program makes anew in each epoch share a name;
those that a helper makes side by side do not. The fact `loaders` has the settings of those that are used, and the line
that made each. The counter `batch_items` has the items of batches, the fact `padding` the share of padding in a few.
"""

from __future__ import annotations

import dis
import re
import threading
import weakref
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Any, Final

from profiler.agent.clocks import Region
from profiler.agent.hooks.syncs import LOADING, OPEN
from profiler.agent.patching import STATE, Hook, assigned_variable, caller, code_line, own_code, patch, user_frame
from profiler.agent.recorder import Recorder
from profiler.run.tables import BATCH_ITEMS, BoundaryKind

_NAME: Final = "_recorded_name"
"""Attribute of a loader's iterator: the name of the loader."""
_WORKER: Final = "_worker_info"
"""Variable of torch's worker module: set in a worker process only."""
_MAX_FRAMES: Final = 40
"""Frames of a stack that tell apart where loaders are made: beyond these only launchers differ."""
_MAX_LOADERS: Final = 1000
"""Loaders whose names are remembered, and stacks that made them."""
_MAX_FACTS: Final = 16
"""Loaders whose settings are recorded: a training has one or two, and each takes some 200 bytes of a file."""
_SETTINGS: Final = ("batch_size", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers")

_ITERABLE: Final = 1
"""`_DatasetKind.Iterable` of torch: what the attribute `_dataset_kind` of a loader is for an IterableDataset."""
_MAX_TENSORS: Final = 8
"""Tensors of a batch that are looked at."""
_MIN_LENGTH, _MIN_ROWS = 8, 2
"""Least length and number of the rows in which padding is looked for."""
_MAX_ROWS, _MAX_LENGTH = 32, 4096
"""Rows of a batch that are looked at, and their greatest length: these take some 4 ms at most."""
_MIN_RUN: Final = 2
"""Equal last elements of a row from which they may be padding: two rows may end alike by chance."""
_INTEGERS: Final = ("torch.int64", "torch.int32")
_SAMPLED: Final = (3, 6, 12, 24, 48, 96)
"""The batches of a loader whose padding is looked for, by their number."""
_MAX_PADDING_LOADERS: Final = 16
"""Loaders in whose batches padding is looked for: a program that makes more makes them again and again."""


class _Thread(threading.local):
    requesting = False
    """Whether this thread waits for a loader: the time of a loader within a dataset belongs to the outer one."""


def _install(module: Any) -> None:
    """Batches of loaders in workers, and of loaders within a dataset, end no step."""
    names, thread, batches = _LoaderNames(), _Thread(), BatchContents()
    worker = vars(module._utils.worker)
    iterator = module._BaseDataLoaderIter
    patch(module.DataLoader, "__init__", lambda original: _created(original, names))
    patch(module.DataLoader, "__iter__", lambda original: _started(original, thread, worker))
    patch(iterator, "__init__", lambda original: _iterator_created(original, names))
    patch(iterator, "__next__", lambda original: _requested(original, thread, worker, batches))
    if STATE.recorder is not None and STATE.recorder.detailed:
        patch(ForkingPickler, "loads", lambda original: _received(original, thread))


def _created(original: Callable[..., None], names: _LoaderNames) -> Callable[..., None]:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if STATE.recorder is not None:
            names.add(self, caller(1))

    return init


def _iterator_created(original: Callable[..., None], names: _LoaderNames) -> Callable[..., None]:
    def init(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        original(self, loader, *args, **kwargs)
        recorder = STATE.recorder
        if recorder is not None:
            setattr(self, _NAME, names.name(loader))
            ahead = getattr(self, "_num_workers", 0) * (getattr(loader, "prefetch_factor", None) or 1)
            recorder.prefetch = max(recorder.prefetch, ahead)

    return init


def _started(original: Callable[[Any], Any], thread: _Thread, worker: Mapping[str, Any]) -> Callable[[Any], Any]:
    def start(self: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or thread.requesting or worker.get(_WORKER) is not None:
            return original(self)
        before, OPEN.inside = OPEN.inside, OPEN.inside or LOADING
        try:
            if not recorder.detailed:
                return original(self)
            with Region(recorder, "loader start"):
                return original(self)
        finally:
            OPEN.inside = before

    return start


def _requested(
    original: Callable[[Any], Any], here: _Thread, worker: Mapping[str, Any], batches: BatchContents
) -> Callable[[Any], Any]:
    def ask(self: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or here.requesting or worker.get(_WORKER) is not None:
            return original(self)
        at, ended, begin, thread, depth = None, 0, 0, recorder.thread, 0
        name = getattr(self, _NAME, "DataLoader")
        here.requesting = True
        before, OPEN.inside = OPEN.inside, OPEN.inside or LOADING
        try:
            if not recorder.index:  # else the program marks its steps
                at = recorder.begin_boundary(BoundaryKind.LOADER, name)
            if recorder.detailed:
                depth = thread.depth
                thread.depth = depth + 1
                begin = recorder.begin_clocked("data", depth)
            batch = original(self)
            if begin:
                batches.look_at(batch, name, getattr(self, "_collate_fn", None), recorder)
            return batch
        except StopIteration:
            ended = 1
            raise
        finally:
            here.requesting = False
            OPEN.inside = before
            if begin:
                recorder.region("data", begin, depth)
            if at is not None:
                recorder.end_boundary(BoundaryKind.LOADER, name, at, ended)

    return ask


def _received(original: Callable[..., Any], thread: _Thread) -> Callable[..., Any]:
    def loads(*args: Any, **kwargs: Any) -> Any:
        recorder = STATE.recorder
        if recorder is None or not thread.requesting:
            return original(*args, **kwargs)
        with Region(recorder, "receive"):
            return original(*args, **kwargs)

    return loads


# ---------------------------------------------------------------- names


@dataclass(eq=False, slots=True)
class _Name:
    """A name, and the last loader that bears it."""

    label: str
    loader: weakref.ref[Any]
    code: CodeType
    """The user's code that made it, with the line."""
    line: int
    instruction: int
    """The instruction that made it; -1: a library made it for that line."""
    text: str = ""
    """Empty until batches are requested: many a loader is only a template for a framework's own."""
    used: bool = False
    is_kept: bool = False
    """Whether a loader that bears it gave more than one iterator: none does that is made anew for each."""


class _LoaderNames:
    """Names loaders; about 20 µs for each loader that is made."""

    def __init__(self) -> None:
        self._by_origin: dict[tuple[Any, ...], list[_Name]] = {}
        self._by_loader: dict[int, _Name] = {}  # by id: a loader need not have a hash
        self._label_counts: dict[str, int] = {}
        self._facts: dict[str, dict[str, Any]] = {}

    def add(self, loader: Any, frame: FrameType | None) -> None:
        """Name `loader`, made by `frame`: as the one that the same stack made before, if that was used and is over."""
        creator = user_frame(frame)
        if creator is None:
            return
        attributes = vars(loader)  # no getattr: a loader may answer to any name
        dataset = attributes.get("dataset")
        kind = type(dataset), type(attributes.get("sampler")), attributes.get("batch_size")
        if len(self._by_origin) >= _MAX_LOADERS:
            self._by_origin.clear()
        names = self._by_origin.setdefault((_stack(frame), *kind), [])
        before = [(name, name.loader()) for name in names]
        name = next((name for name, last in before if last is not None and vars(last).get("dataset") is dataset), None)
        name = name or next((name for name, last in before if name.used or last is None), None)
        if name is None:
            label = f"{type(loader).__name__} ({PurePath(creator.f_code.co_filename).name}:{creator.f_lineno})"
            instruction = creator.f_lasti if frame is creator else -1
            name = _Name(label, weakref.ref(loader), creator.f_code, creator.f_lineno, instruction)
            names.append(name)
        name.loader, name.used = weakref.ref(loader), False
        if len(self._by_loader) >= _MAX_LOADERS:  # a program that makes them without end: most no longer exist
            self._by_loader = {key: name for key, name in self._by_loader.items() if name.loader() is not None}
        self._by_loader[id(loader)] = name

    def name(self, loader: Any) -> str:
        """Return the name of a loader whose batches are requested now."""
        name = self._by_loader.get(id(loader))
        if name is None or name.loader() is not loader:
            return type(loader).__name__
        is_first, name.used = not name.used, True
        if not name.text:
            number = self._label_counts[name.label] = self._label_counts.get(name.label, 0) + 1
            name.text = name.label if number == 1 else f"{name.label} #{number}"
        if is_first or not name.is_kept:  # 20 µs
            name.is_kept = name.is_kept or not is_first
            self._record_settings(name, vars(loader))
        return name.text

    def _record_settings(self, name: _Name, attributes: Mapping[str, Any]) -> None:
        """Record the settings of a loader whose first batch is requested, and whether it is made anew each time."""
        settings = {key: _plain(attributes.get(key)) for key in _SETTINGS}
        if settings["batch_size"] is None:
            settings["batch_size"] = _plain(getattr(attributes.get("batch_sampler"), "batch_size", None))
        settings["iterable"] = attributes.get("_dataset_kind") == _ITERABLE
        settings["in_order"] = bool(attributes.get("in_order", True))
        settings["made_anew"] = name.text in self._facts and not name.is_kept
        before = self._facts.get(name.text)
        if before is None:
            if len(self._facts) >= _MAX_FACTS:
                return
            code = name.code
            before = self._facts[name.text] = {
                **code_line(code, name.line),
                "variable": assigned_variable(code, name.instruction),
            }
        elif all(before[key] == value for key, value in settings.items()):
            return
        before.update(settings)
        if STATE.recorder is not None:
            STATE.recorder.add_hook_facts(loaders=self._facts)


def _plain(value: Any) -> int | bool | None:
    """Return a setting as JSON has it; None for what a program put there instead of a number."""
    return value if type(value) in (int, bool) else None


def _stack(frame: FrameType | None) -> tuple[tuple[CodeType, int], ...]:
    stack: list[tuple[CodeType, int]] = []
    while frame is not None and len(stack) < _MAX_FRAMES:
        stack.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(stack)


class BatchContents:
    """Looks at the batches that the training process gets."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._padding: dict[str, dict[str, Any]] = {}

    def look_at(self, batch: Any, loader: str, collate: Any, recorder: Recorder) -> None:
        """Count the items of a batch; look for padding in a few. About 3 µs."""
        try:
            if items := count_items(batch):
                recorder.count(BATCH_ITEMS, items)
            number = self._counts[loader] = self._counts.get(loader, 0) + 1
            if number in _SAMPLED and len(self._counts) <= _MAX_PADDING_LOADERS:
                self._look_for_padding(batch, loader, collate, recorder)
        except Exception as error:  # noqa: BLE001 - the edge to the program, which goes on; the run's status reports it
            recorder.hook_errors["loader"] = f"{type(error).__name__}: {error}"

    def _look_for_padding(self, batch: Any, loader: str, collate: Any, recorder: Recorder) -> None:
        nothing = {"batches": 0, "padded_batches": 0, "elements": 0, "padding": 0, "ids": []}
        fact = self._padding.setdefault(loader, nothing)
        if "line" not in fact:
            fact["line"] = padding_line(own_code(collate))
        fact["batches"] += 1
        if (seen := padding(batch)) is not None:
            elements, padded, padding_id = seen
            fact["padded_batches"] += 1
            fact["elements"] += elements
            fact["padding"] += padded
            fact["ids"] = sorted({*fact["ids"], padding_id})
            recorder.add_hook_facts(padding=self._padding)


def tensors(batch: Any) -> Iterator[Any]:
    """Yield the tensors of a batch that are no deeper than in a list, tuple or dictionary."""
    values = batch.values() if isinstance(batch, (dict, UserDict)) else batch
    if not isinstance(batch, (list, tuple, dict, UserDict)):
        values = (batch,)
    for value, _ in zip(values, range(_MAX_TENSORS), strict=False):
        if type(value).__module__ == "torch" and type(value).__name__ == "Tensor":
            yield value


def count_items(batch: Any) -> int:
    """Return the first dimension that all tensors of a batch share; 0 where they share none. About 2 µs."""
    sizes = {int(tensor.shape[0]) for tensor in tensors(batch) if tensor.ndim}
    return sizes.pop() if len(sizes) == 1 else 0


_PADS: Final = re.compile(r"LOAD_(?!CONST)\w* (?:\w*_)?pad(?:$|_|ding|ded)", re.IGNORECASE)


def padding_line(code: CodeType | None) -> dict[str, Any] | None:
    """Return the first line of a collate function that names something with `pad`, such as `pad_sequence`."""
    if code is None:
        return None
    used = (each for each in dis.get_instructions(code) if _PADS.match(f"{each.opname} {each.argval}"))
    line = next((each.positions.lineno for each in used if each.positions and each.positions.lineno), None)
    return code_line(code, line) if line is not None else None


def padding(batch: Any) -> tuple[int, int, int] | None:
    """Return the elements of the first tensor of token ids, how many of them are padding, and the id of that. None if
    no tensor of the batch looks like padded token ids.

    Padding is one id that ends rows at least twice, and stands nowhere else in any row; rows are of different length
    without it. No id is negative: labels often have -100 where the loss ignores them.
    """
    for tensor in tensors(batch):
        if tensor.ndim != 2 or str(tensor.dtype) not in _INTEGERS or tensor.device.type != "cpu":
            continue
        rows, length = tensor.shape
        if rows >= _MIN_ROWS and _MIN_LENGTH <= length <= _MAX_LENGTH:
            found = padding_of_rows(tensor[:_MAX_ROWS].tolist())
            if found is not None:
                return found
    return None


def padding_of_rows(rows: Sequence[Sequence[int]]) -> tuple[int, int, int] | None:
    """Return the elements of these rows, how many of them are padding, and its id; see `padding`."""
    ids = {row[-1] for row in rows if row[-1] == row[-_MIN_RUN]}
    if len(ids) != 1:
        return None
    if any(min(row) < 0 for row in rows):
        return None
    (last,) = ids
    padded = []
    for row in rows:
        filled = len(row)
        while filled and row[filled - 1] == last:
            filled -= 1
        if last in row[:filled]:
            return None
        padded.append(len(row) - filled)
    if len(set(padded)) < 2:
        return None
    return sum(map(len, rows)), sum(padded), last


PLUGIN = Hook("loader", {"torch.utils.data.dataloader": _install})
