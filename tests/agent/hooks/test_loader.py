"""The training side of a loader: questions are boundaries, waits are regions, batches stay what they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiler.agent.hooks import loader
from profiler.agent.patching import STATE
from profiler.run.model import Run
from tests.fakes.watched import regions, watched

torch = pytest.importorskip("torch")
dataloader = torch.utils.data.dataloader
DataLoader = dataloader.DataLoader


def boundaries(run: Run) -> list[tuple[str, int]]:
    return [(run.names[row["name"]], int(row["flag"])) for row in run.boundaries]


def made(numbers: Any) -> Any:
    return DataLoader(numbers, batch_size=2)


class Streamed(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
    """Gives batches of its own, each through a loader of its own."""

    def __iter__(self) -> Iterator[Any]:
        for start in (0, 10):
            yield from DataLoader(range(start, start + 2), batch_size=2)


def test_each_question_is_a_boundary_and_the_last_one_says_so(tmp_path: Path) -> None:
    with watched(tmp_path, (loader.PLUGIN, dataloader)) as loaded:
        batches = [batch.tolist() for batch in DataLoader(range(5), batch_size=2)]
        run = loaded()
    assert batches == [[0, 1], [2, 3], [4]]
    names, flags = zip(*boundaries(run), strict=True)
    assert flags == (0, 0, 0, 1)
    assert len(set(names)) == 1
    assert names[0].startswith("DataLoader (test_loader.py:")
    assert regions(run) == ["loader start", *["data"] * 4]
    data = run.regions[[run.names[n] == "data" for n in run.regions["name"]]]
    assert (run.boundaries["time"] <= data["begin"]).all()


def test_at_light_there_are_boundaries_and_no_regions(tmp_path: Path) -> None:
    with watched(tmp_path, (loader.PLUGIN, dataloader), level="light") as loaded:
        list(DataLoader(range(4), batch_size=2))
        run = loaded()
    assert [flag for _, flag in boundaries(run)] == [0, 0, 1]
    assert not len(run.regions)


def test_what_is_counted_in_a_question_belongs_to_the_step_that_it_begins(tmp_path: Path) -> None:
    def counting(rows: list[int]) -> list[int]:
        assert STATE.recorder is not None
        STATE.recorder.count("read", len(rows))
        return rows

    with watched(tmp_path, (loader.PLUGIN, dataloader)) as loaded:
        list(DataLoader(range(7), batch_size=3, collate_fn=counting))
        run = loaded()
    reads = [(int(row["step"]), row["value"]) for row in run.values if run.names[row["name"]] == "read"]
    assert reads == [(0, 3.0), (1, 3.0), (2, 1.0)]


def test_loaders_made_side_by_side_by_one_line_are_told_apart(tmp_path: Path) -> None:
    train, check = list(range(4)), list(range(10, 14))
    with watched(tmp_path, (loader.PLUGIN, dataloader)) as loaded:
        both = [made(rows) for rows in (train, check)]
        for one in (*both, both[0]):
            list(one)
        names = list(dict.fromkeys(name for name, _ in boundaries(loaded())))
    assert len(names) == 2
    assert names[1] == f"{names[0]} #2"


def test_a_loader_that_is_never_asked_takes_no_number(tmp_path: Path) -> None:
    with watched(tmp_path, (loader.PLUGIN, dataloader)) as loaded:
        _pattern, own = [made(rows) for rows in ([1, 2], [3, 4])]
        list(own)
        names = {name for name, _ in boundaries(loaded())}
    assert not any("#" in name for name in names)


def test_a_loader_made_anew_each_epoch_keeps_its_name(tmp_path: Path) -> None:
    with watched(tmp_path, (loader.PLUGIN, dataloader)) as loaded:
        for epoch in range(3):
            for _ in made(list(range(epoch, epoch + 4))):
                pass
        names = {name for name, _ in boundaries(loaded())}
    assert len(names) == 1


def test_a_loader_within_a_dataset_is_a_part_of_the_outer_one(tmp_path: Path) -> None:
    with watched(tmp_path, (loader.PLUGIN, dataloader)) as loaded:
        outer = DataLoader(Streamed(), batch_size=None)
        assert [batch.tolist() for batch in outer] == [[0, 1], [10, 11]]
        run = loaded()
    assert [flag for _, flag in boundaries(run)] == [0, 0, 1]
    assert regions(run) == ["loader start", "data", "data", "data"]


def test_an_error_of_the_dataset_passes_unchanged(tmp_path: Path) -> None:
    def failing(_: Any) -> None:
        raise LookupError("row 3")

    with watched(tmp_path, (loader.PLUGIN, dataloader)) as loaded:
        with pytest.raises(LookupError, match="row 3"):
            next(iter(DataLoader(range(4), collate_fn=failing)))
        assert [len(batch) for batch in DataLoader(range(2), batch_size=2)] == [2]
        run = loaded()
    assert [flag for _, flag in boundaries(run)] == [0, 0, 1]


def test_what_was_patched_is_as_before(tmp_path: Path) -> None:
    before = DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__
    with watched(tmp_path, (loader.PLUGIN, dataloader)):
        assert DataLoader.__iter__ is not before[0]
    assert (DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__) == before
