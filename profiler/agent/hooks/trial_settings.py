"""Changes settings of a program under `try`: the variable PROFILER_TRIAL_SETTINGS holds them as JSON.

`threads`: the most threads of an operator. `collect`: false leaves out garbage collection. `anomaly`: false leaves
anomaly detection off. `optimizer`: options of every optimizer that has them. `set_to_none`: true drops gradients
instead of filling them with zeros. `loader`: arguments of the DataLoaders in the training process; `replay`: they give
their first batches again and again; `loader_at`: both only for those that this file and line makes. Once a loader is
made that either changes, the fact CHANGED_LOADER is true. In all other recordings this hook changes nothing.
"""

from __future__ import annotations

import gc
import json
import os
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from types import FrameType, ModuleType
from typing import Any, Final

from profiler.agent.patching import STATE, Hook, caller, patch, user_frame
from profiler.run.tables import CHANGED_LOADER

VARIABLE: Final = "PROFILER_TRIAL_SETTINGS"
_REPLAYED: Final = 2
"""Batches that a loader makes before it replays them."""
_CHOSEN: Final = "_profiler_trial"
"""Attribute of the loaders that are changed."""
_WORKERS_ONLY: Final = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "timeout": 0,
    "multiprocessing_context": None,
}
"""Arguments of a DataLoader that need workers, with the value that they have without."""


def settings() -> dict[str, Any]:
    """Return the settings to change; empty in programs that are not under trial."""
    value: dict[str, Any] = json.loads(os.environ.get(VARIABLE) or "{}")
    return value


def _install(module: ModuleType) -> None:
    changed = settings()
    threads = changed.get("threads")
    if threads is not None:
        torch: Any = module
        torch.set_num_threads(min(torch.get_num_threads(), threads))
        patch(module, "set_num_threads", lambda original: lambda number: original(min(number, threads)))
    if changed.get("collect") is False:
        gc.disable()
        patch(gc, "collect", lambda _: lambda *_, **__: 0)
        patch(gc, "enable", lambda _: lambda: None)
    if changed.get("anomaly") is False:  # both context managers of torch call it
        patch(module, "set_anomaly_enabled", lambda original: lambda _, *more, **named: original(False, *more, **named))


def _install_optimizer(module: Any) -> None:
    changed = settings()
    if changed.get("optimizer"):
        patch(module.Optimizer, "__init__", lambda original: _with_options(original, changed["optimizer"]))
    _drop_gradients(module.Optimizer)


def _drop_gradients(owner: Any) -> None:
    if settings().get("set_to_none"):
        patch(owner, "zero_grad", lambda original: lambda self, *_, **__: original(self, set_to_none=True))


def _with_options(original: Callable[..., None], changed: Mapping[str, Any]) -> Callable[..., None]:
    def init(self: Any, params: Any, defaults: dict[str, Any]) -> None:
        original(self, params, {**defaults, **{name: value for name, value in changed.items() if name in defaults}})

    return init


def _install_loader(module: Any) -> None:
    changed = settings()
    arguments, place = changed.get("loader") or {}, changed.get("loader_at")
    if arguments or changed.get("replay"):
        patch(module.DataLoader, "__init__", lambda original: _with_arguments(original, arguments, place, module))
    if changed.get("replay"):
        patch(module.DataLoader, "__iter__", _replaying)


def _is_at(place: Sequence[Any], frame: FrameType | None) -> bool:
    """Tell whether the user's code that this frame runs for is at a file and line."""
    frame = user_frame(frame)
    return frame is not None and [os.path.realpath(frame.f_code.co_filename), frame.f_lineno] == [*place]


def _with_arguments(
    original: Callable[..., None], changed: Mapping[str, Any], place: Sequence[Any] | None, module: Any
) -> Callable[..., None]:
    def init(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        is_worker = vars(module._utils.worker).get("_worker_info") is not None
        is_chosen = not is_worker and (place is None or _is_at(place, caller(1)))
        if is_chosen:
            workers = changed.get("num_workers", kwargs.get("num_workers", args[4] if len(args) > 4 else 0))
            args = (*args[:4], workers, *args[5:]) if len(args) > 4 else args
            kwargs |= {name: value for name, value in changed.items() if name != "num_workers" or len(args) <= 4}
            if not workers:
                kwargs |= {name: value for name, value in _WORKERS_ONLY.items() if name in kwargs}
        original(self, dataset, *args, **kwargs)
        if is_chosen:
            vars(self)[_CHOSEN] = True
            recorder = STATE.recorder
            if recorder is not None and not recorder.hook_facts.get(CHANGED_LOADER):
                recorder.add_hook_facts(**{CHANGED_LOADER: True})

    return init


def _replaying(original: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    batches: dict[int, tuple[Any, list[Any], int | None]] = {}

    def replay(self: Any) -> Iterator[Any]:
        return _replay(self) if _CHOSEN in vars(self) else original(self)

    def _replay(self: Any) -> Iterator[Any]:
        if id(self) not in batches:
            made, iterator = [], original(self)
            for batch in iterator:
                made.append(batch)
                if len(made) == _REPLAYED:
                    break
            del iterator
            if getattr(self, "_iterator", None) is not None:
                self._iterator = None  # its workers end
            batches[id(self)] = self, made, _length(self)
        _, made, length = batches[id(self)]
        number = 0
        while made and (length is None or number < length):
            yield _with_own_containers(made[number % len(made)])
            number += 1

    return replay


def _with_own_containers(batch: Any) -> Any:
    """Copy the containers of a batch at every level: the program may take parts out of them, as batch.pop("labels")
    does. What they contain is shared."""
    if isinstance(batch, tuple):
        make = tuple if type(batch) is tuple else getattr(batch, "_make", None)  # of a named tuple
        parts = [_with_own_containers(part) for part in batch]
        is_same = all(part is own for part, own in zip(batch, parts, strict=True))
        return batch if is_same or make is None else make(parts)
    if not isinstance(batch, (dict, list, UserDict)):
        return batch
    own = copy(batch)
    for key in range(len(own)) if isinstance(own, list) else list(own):
        part = _with_own_containers(own[key])
        if part is not own[key]:
            own[key] = part
    return own


def _length(loader: Any) -> int | None:
    """Return the batches of an epoch; None: its dataset does not tell, and the first epoch never ends."""
    try:
        return len(loader)
    except TypeError:
        return None


PLUGIN = Hook(
    "trial-settings",
    {
        "torch": _install,
        "torch.nn.modules.module": lambda module: _drop_gradients(module.Module),
        "torch.optim.optimizer": _install_optimizer,
        "torch.utils.data.dataloader": _install_loader,
    },
)
