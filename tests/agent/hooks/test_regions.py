"""Functions of libraries that are only timed: a region for each outermost call, results as before."""

from __future__ import annotations

import gc
import os
from contextlib import nullcontext
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from profiler.agent.hooks import regions
from profiler.run.tables import LINE_OF
from tests.fakes.watched import regions as recorded
from tests.fakes.watched import watched

torch = pytest.importorskip("torch")


def test_no_time_is_taken_at_level_light() -> None:
    assert "light" not in regions.REGIONS.levels


@pytest.mark.parametrize("library", ["torch", "safetensors"])
def test_checkpoints(tmp_path: Path, library: str) -> None:
    module, save, load = torch, "save", "load"
    if library == "safetensors":
        module, save, load = pytest.importorskip("safetensors.torch"), "save_file", "load_file"
    with watched(tmp_path, (regions.REGIONS, module)) as loaded:
        getattr(module, save)({"weight": torch.arange(3)}, tmp_path / "model")
        other_name = torch.serialization.load if module is torch else getattr(module, load)
        assert other_name(tmp_path / "model")["weight"].tolist() == [0, 1, 2]
        run = loaded()
    assert recorded(run) == ["checkpoint"] * 2
    lines = run.calls[run.calls["name"] == run.names.index(LINE_OF["checkpoint"])]
    assert {run.sites[number].file for number in lines["site"].tolist()} == {__file__}
    assert (lines["begin"] == lines["end"]).all()
    assert lines["begin"].tolist() == pytest.approx(run.regions["begin"].tolist(), abs=1e8)


def test_waiting_for_the_disk(tmp_path: Path) -> None:
    with watched(tmp_path, (regions.REGIONS, os)) as loaded, (tmp_path / "log").open("w") as file:
        os.fsync(file.fileno())
        os.fsync(file)
        with pytest.raises(ValueError, match="descriptor"):
            os.fsync(-1)
        assert recorded(loaded()) == ["fsync"] * 3


def test_pinning_is_one_region_whatever_the_batch_consists_of(tmp_path: Path) -> None:
    class Page:
        def pin_memory(self) -> str:
            return "pinned"

    module = torch.utils.data._utils.pin_memory
    with watched(tmp_path, (regions.REGIONS, module)) as loaded:
        assert module.pin_memory({"a": [Page(), Page()], "b": Page()}) == {"a": ["pinned", "pinned"], "b": "pinned"}
        assert recorded(loaded()) == ["pin memory"]


@pytest.fixture
def rows() -> Any:
    """A dataset of three rows in memory."""
    return pytest.importorskip("datasets").Dataset.from_dict({"n": [1, 2, 3]})


def test_a_dataset(tmp_path: Path, rows: Any) -> None:
    from datasets import arrow_dataset

    with watched(tmp_path, (regions.REGIONS, arrow_dataset)) as loaded:
        with pytest.raises(IndexError):
            rows[3]
        assert rows[1] == {"n": 2}
        assert rows.__getitems__([0, 2]) == [{"n": 1}, {"n": 3}]
        assert [row["n"] for row in rows] == [1, 2, 3]
        mapped = rows.map(lambda row: {"n": row["n"] + rows[0]["n"]}, load_from_cache_file=False)
        assert recorded(loaded()) == ["dataset"] * (1 + 2 + 4) + ["dataset map"], "iteration also finds the end"
    assert mapped["n"][:] == [2, 3, 4]


def test_iterations_make_no_code_of_their_own(tmp_path: Path, rows: Any) -> None:
    """Caches of code objects would keep it."""
    from datasets import arrow_dataset

    gc.collect()
    with watched(tmp_path, (regions.REGIONS, arrow_dataset)):
        before = sum(type(each) is FunctionType for each in gc.get_objects())
        iterators = [iter(rows) for _ in range(50)]
        assert [next(iterator) for iterator in iterators] == [{"n": 1}] * 50
        made = sum(type(each) is FunctionType for each in gc.get_objects()) - before
    assert made < len(iterators)


@pytest.mark.parametrize(
    ("name", "fails"),
    [("torch.utils.data._utils.pin_memory", True), ("torch", False)],
)
def test_only_functions_that_a_version_may_lack_can_be_missing(name: str, fails: bool) -> None:
    with pytest.raises(AttributeError) if fails else nullcontext():
        regions.REGIONS.install(ModuleType(name))


def test_a_streamed_dataset(tmp_path: Path, rows: Any) -> None:
    from datasets import iterable_dataset

    stream = rows.to_iterable_dataset().map(lambda row: {"n": 10 * row["n"]})
    with watched(tmp_path, (regions.REGIONS, iterable_dataset)) as loaded:
        iterator = iter(stream)
        assert next(iterator) == {"n": 10}
        iterator.close()
        assert recorded(loaded()) == ["dataset"]
