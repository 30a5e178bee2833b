"""Small expressions that look at how torch is made: each has the same outcome with the hooks in place as without."""

from __future__ import annotations

import io
import multiprocessing.reduction
import operator
import os
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from profiler.agent import installation, patching
from profiler.agent.hooks import loader, regions, tensors
from profiler.agent.recorder import Recorder

torch: Any = pytest.importorskip("torch")


class Sub(torch.Tensor):  # type: ignore[misc]
    """A subclass of Tensor that changes nothing."""


class Index:
    """Not a tensor, and it answers for functions of torch all the same."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return f"asked about {func.__name__}"


def _set(target: Any, index: Any, value: Any) -> Any:
    target[index] = value
    return target


def _scripted(t):  # type: ignore[no-untyped-def]  # torch takes them for tensors
    return torch.nonzero(t).sum() + torch.unique(t).sum()


EXPRESSIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    # of two tensors of one number each
    "tensor of numbers": lambda a, b: torch.tensor([a, b]),
    "tensor of rows of one": lambda a, b: torch.tensor([a[None], b[None]]),
    "tensor of rows of two": lambda a, b: torch.tensor([torch.ones(2), torch.ones(2)]),
    "as_tensor": lambda a, b: torch.as_tensor([a, b]),
    "FloatTensor": lambda a, b: torch.FloatTensor([a, b]),
    "FloatTensor of rows": lambda a, b: torch.FloatTensor([a[None], b[None]]),
    "new_tensor": lambda a, b: a.new_tensor([a, b]),
    "array": lambda a, b: np.array([a, b]),
    "array of rows": lambda a, b: np.array([a[None], b[None]]),
    "array of what needs a gradient": lambda a, b: np.array([a.requires_grad_(), b]),
    "array of objects": lambda a, b: np.array([torch.ones(2), torch.ones(3)], dtype=object),
    "zeros of a tensor": lambda a, b: torch.zeros(torch.tensor([2, 3])),
    "view by a tensor": lambda a, b: torch.zeros(6).view(torch.tensor([2, 3])),
    "permute by a tensor": lambda a, b: torch.zeros(2, 3).permute(torch.tensor([1, 0])).shape,
    "sum over a tensor": lambda a, b: torch.zeros(2, 3).sum(torch.tensor([0])),
    "expand by a tensor": lambda a, b: torch.ones(1).expand(torch.tensor([3])),
    "index by a list": lambda a, b: torch.arange(6)[[0, 1]],
    "index by a mask": lambda a, b: torch.arange(6)[torch.arange(6) > 3],
    "index by a subclass": lambda a, b: type(torch.arange(4)[torch.tensor([0, 1]).as_subclass(Sub)]),
    "index by what answers itself": lambda a, b: torch.arange(4)[Index()],
    "write under a mask": lambda a, b: _set(torch.zeros(4), torch.arange(4) > 1, 1.0),
    "write by a subclass": lambda a, b: _set(torch.zeros(4), torch.tensor([0, 1]).as_subclass(Sub), 1),
    "write a list": lambda a, b: _set(torch.zeros(3), 0, [a]),
    "delete": lambda a, b: operator.delitem(torch.zeros(3), 0),
    "cat of a tensor": lambda a, b: torch.cat(torch.ones(2, 2)),
    "stack": lambda a, b: torch.stack((a, b)),
    "concat": lambda a, b: operator.concat(torch.ones(1), torch.ones(1)),
    "concatenate": lambda a, b: np.concatenate([torch.ones(2), torch.ones(2)]),
    "index of an array": lambda a, b: np.arange(4)[torch.tensor([0, 1])],
    "number as index of an array": lambda a, b: np.arange(4)[torch.tensor(1)],
    "number as index of a list": lambda a, b: [1, 2, 3][torch.tensor(1)],
    "slice of a list": lambda a, b: [1, 2, 3][: torch.tensor(2)],
    "np.zeros": lambda a, b: np.zeros(torch.tensor([2, 2])),
    "np.full": lambda a, b: np.full(torch.tensor(2), 1.0),
    "np.mean": lambda a, b: np.ones((2, 2)).mean(torch.tensor(0)),
    "size": lambda a, b: torch.Size(torch.tensor([1, 2])),
    "bytes": lambda a, b: bytes(torch.tensor([1, 2])),
    "sample": lambda a, b: random.sample(torch.arange(3), 1),
    "text": lambda a, b: f"{a} {a:.2f} {b!r} %s %d" % (a, torch.tensor(3)),
    "join": lambda a, b: "".join(torch.ones(1)),
    "times": lambda a, b: [(1,) * torch.tensor(2), torch.tensor(2) * [0]],
    "plus a list": lambda a, b: torch.ones(1) + [1],  # noqa: RUF005
    "a list plus": lambda a, b: [0] + torch.ones(1),  # noqa: RUF005
    "item of two": lambda a, b: torch.ones(2).item(),
    "numpy by force": lambda a, b: torch.ones(2).numpy(force=True),
    "bool of two": lambda a, b: bool(torch.ones(2)),
    "one function of saving": lambda a, b: torch.save is torch.serialization.save,
    "tensor method": lambda a, b: torch.overrides.is_tensor_method_or_property(torch.Tensor.item),
    "name of a method": lambda a, b: torch.overrides.resolve_name(torch.Tensor.item),
    "name of a function": lambda a, b: torch.overrides.resolve_name(torch.nonzero),
    "vmap": lambda a, b: torch.vmap(lambda row: row[torch.tensor([0])])(torch.ones(2, 2)),
    "trace": lambda a, b: torch.jit.trace(lambda x: x[0] * 2, torch.ones(2))(torch.ones(2)),
    "script": lambda a, b: torch.jit.script(_scripted)(torch.arange(3.0)),
    "gradient": lambda a, b: torch.autograd.grad(a.requires_grad_() * 2, a),
    "deprecated": lambda a, b: a.nonzero(as_tuple=True),
}


def outcome(ask: Callable[[Any, Any], Any]) -> tuple[str, list[str]]:
    """The result or error as text, and the warnings."""
    for known in vars(torch.overrides).values():  # what torch remembers of its functions
        if hasattr(known, "cache_clear"):
            known.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # the garbage of others may be collected here
        try:
            words = repr(ask(torch.tensor(1.0), torch.tensor(2.0)))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must be the same
            words = f"{type(error).__name__}: {error}"
    return words, [f"{warning.category.__name__}: {warning.message}" for warning in caught]


@pytest.fixture(scope="module")
def bare() -> dict[str, tuple[str, list[str]]]:
    return {name: outcome(ask) for name, ask in EXPRESSIONS.items()}


@pytest.fixture(scope="module")
def hooked(bare: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, list[str]]]]:
    """The same in the same process, with hooks that replace functions of torch; they stay until the module's end."""
    before, already = patching.STATE.recorder, patching.patch_count()
    patching.STATE.recorder = Recorder(tmp_path_factory.mktemp("run"), "standard")
    try:
        for one, module in (
            (tensors.TENSORS, torch),
            (tensors.FUNCTIONS, torch),
            (regions.REGIONS, torch),
            (loader.PLUGIN, torch.utils.data.dataloader),
        ):
            one.install(module)
        for name in ("_exit", "execv", "execve"):
            patching.patch(os, name, installation._flushed_first)
        yield {name: outcome(ask) for name, ask in EXPRESSIONS.items()}
    finally:
        patching.unpatch(already)
        patching.STATE.recorder = before


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_has_the_same_outcome(bare: Any, hooked: Any, name: str) -> None:
    once = {"Sparse", "Converting a tensor with requires_grad"}  # torch says these once a process
    (words, warned), (words_hooked, warned_hooked) = bare[name], hooked[name]
    assert words_hooked == words
    assert set(warned_hooked) <= set(warned)
    assert [line for line in warned if not any(part in line for part in once) and line not in warned_hooked] == []


@pytest.mark.usefixtures("hooked")
def test_every_replaced_function_is_pickled_by_where_it_is_found() -> None:
    dill = pytest.importorskip("dill")
    for one in patching.patches():
        function = getattr(one.owner, one.name)
        for way in (pickle, dill):
            data = way.dumps(function)
            assert way.loads(data) is function, (way, one.owner, one.name)
            assert b"profiler" not in data


@pytest.mark.usefixtures("hooked")
def test_a_builtin_of_a_class_stays_unbound() -> None:
    reader: Any = multiprocessing.reduction.ForkingPickler
    assert reader.loads(pickle.dumps(7)) == 7
    assert reader(io.BytesIO()).loads(pickle.dumps(7)) == 7


def test_hashes_of_datasets_take_what_a_tokenizer_is_bound_to(tmp_path: Path) -> None:
    fingerprint = pytest.importorskip("datasets.fingerprint")
    library = pytest.importorskip("tokenizers")
    from tests.fakes import hooks

    made = library.Tokenizer(library.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    with hooks.installed(Recorder(tmp_path, "standard"), regions.TOKENIZERS, module=library):
        hashes = {fingerprint.Hasher.hash(made.encode_batch) for _ in range(2)}
        assert pickle.loads(pickle.dumps(made.encode))("a").ids == [0]
    assert len(hashes) == 1
