"""The training side of a loader: questions are boundaries, waits are regions, batches stay what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[[], Run]]:
    with watched(tmp_path, (loader.PLUGIN, dataloader)) as loaded:
        yield loaded


def names(run: Run) -> list[str]:
    return [run.names[number] for number in run.boundaries["name"]]


def made(numbers: Any) -> Any:
    return DataLoader(numbers, batch_size=2)


class Streamed(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
    """Gives batches of its own, each through a loader of its own."""

    def __iter__(self) -> Iterator[Any]:
        for start in (0, 10):
            yield from DataLoader(range(start, start + 2), batch_size=2)


def test_each_request_is_a_boundary_and_the_last_one_has_a_flag(watch: Callable[[], Run]) -> None:
    assert [batch.tolist() for batch in DataLoader(range(5), batch_size=2)] == [[0, 1], [2, 3], [4]]
    run = watch()
    assert run.boundaries["flag"].tolist() == [0, 0, 0, 1]
    (name,) = set(names(run))
    assert name.startswith("DataLoader (test_loader.py:")
    assert regions(run) == ["loader start", *["data"] * 4]
    data = run.regions[[run.names[n] == "data" for n in run.regions["name"]]]
    assert (run.boundaries["time"] <= data["begin"]).all()


def test_at_light_there_are_boundaries_and_no_regions(tmp_path: Path) -> None:
    with watched(tmp_path, (loader.PLUGIN, dataloader), level="light") as loaded:
        list(DataLoader(range(4), batch_size=2))
        run = loaded()
    assert (run.boundaries["flag"].tolist(), len(run.regions)) == ([0, 0, 1], 0)


def test_what_is_counted_in_a_question_belongs_to_the_step_that_it_begins(watch: Callable[[], Run]) -> None:
    def counting(rows: list[int]) -> list[int]:
        assert STATE.recorder is not None
        STATE.recorder.count("read", len(rows))
        return rows

    list(DataLoader(range(7), batch_size=3, collate_fn=counting))
    run = watch()
    reads = [(int(row["step"]), row["value"]) for row in run.values if run.names[row["name"]] == "read"]
    assert reads == [(0, 3.0), (1, 3.0), (2, 1.0)]


def test_loaders_made_side_by_side_by_one_line_have_different_names(watch: Callable[[], Run]) -> None:
    both = [made(rows) for rows in (list(range(4)), list(range(10, 14)))]
    for one in (*both, both[0]):
        list(one)
    first, second = dict.fromkeys(names(watch()))
    assert second == f"{first} #2"


def test_a_loader_without_requests_takes_no_number(watch: Callable[[], Run]) -> None:
    _pattern, own = [made(rows) for rows in ([1, 2], [3, 4])]
    list(own)
    assert not any("#" in name for name in names(watch()))


def test_a_loader_made_anew_each_epoch_keeps_its_name(watch: Callable[[], Run]) -> None:
    for epoch in range(3):
        for _ in made(list(range(epoch, epoch + 4))):
            pass
    assert len(set(names(watch()))) == 1


def test_a_loader_within_a_dataset_is_a_part_of_the_outer_one(watch: Callable[[], Run]) -> None:
    assert [batch.tolist() for batch in DataLoader(Streamed(), batch_size=None)] == [[0, 1], [10, 11]]
    run = watch()
    assert run.boundaries["flag"].tolist() == [0, 0, 1]
    assert regions(run) == ["loader start", "data", "data", "data"]


def test_an_error_of_the_dataset_passes_unchanged(watch: Callable[[], Run]) -> None:
    def failing(_: Any) -> None:
        raise LookupError("row 3")

    with pytest.raises(LookupError, match="row 3"):
        next(iter(DataLoader(range(4), collate_fn=failing)))
    assert [len(batch) for batch in DataLoader(range(2), batch_size=2)] == [2]
    assert watch().boundaries["flag"].tolist() == [0, 0, 1]


def test_what_was_patched_is_as_before(tmp_path: Path) -> None:
    before = DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__
    with watched(tmp_path, (loader.PLUGIN, dataloader)):
        assert DataLoader.__iter__ is not before[0]
    assert (DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__) == before


class Owner:
    def __init__(self, rows: list[int]) -> None:
        self.loader = DataLoader(rows, batch_size=2, num_workers=0)


def settings() -> dict[str, dict[str, Any]]:
    assert STATE.recorder is not None
    loaders: dict[str, dict[str, Any]] = STATE.recorder.hook_facts.get("loaders", {})
    return loaders


def test_the_settings_of_a_loader_are_recorded_once_it_is_used(watch: Callable[[], Run]) -> None:
    train = DataLoader(list(range(4)), batch_size=2, pin_memory=False)
    assert settings() == {}
    list(train)
    list(Owner([1, 2]).loader)
    list(made([3, 4]))
    first, second, third = settings().values()
    assert (first["variable"], second["variable"], third["variable"]) == ("train", "self.loader", "")
    assert (first["file"], first["function"]) == (
        __file__,
        test_the_settings_of_a_loader_are_recorded_once_it_is_used.__name__,
    )
    assert Path(__file__).read_text().splitlines()[first["line"] - 1].strip().startswith("train = DataLoader(")
    chosen = {key: first[key] for key in loader._SETTINGS}
    assert chosen == {
        "batch_size": 2,
        "num_workers": 0,
        "prefetch_factor": None,
        "pin_memory": False,
        "persistent_workers": False,
    }
    assert set(watch().info.facts["loaders"]) == set(settings())


class Numbers(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def test_a_loader_of_an_iterable_dataset_says_so(watch: Callable[[], Run]) -> None:
    list(DataLoader(Numbers(), batch_size=2))
    list(DataLoader([1, 2, 3]))
    assert [each["iterable"] for each in settings().values()] == [True, False]
    assert [each["in_order"] for each in settings().values()] == [True, True]
    list(DataLoader([1, 2, 3], in_order=False))
    assert [each["in_order"] for each in settings().values()][-1] is False


def test_a_loader_that_is_made_for_each_of_its_iterators_is_made_anew(watch: Callable[[], Run]) -> None:
    for _ in range(3):
        list(DataLoader([1, 2, 3]))
    kept = DataLoader([1, 2, 3])
    list(kept)
    list(kept)
    for _ in range(2):  # as for each fold of the data
        fold = DataLoader([1, 2, 3])
        list(fold)
        list(fold)
    assert [each["made_anew"] for each in settings().values()] == [True, False, False]


def test_what_a_sampler_of_batches_says_is_the_size_of_a_batch(watch: Callable[[], Run]) -> None:
    sampler = torch.utils.data.BatchSampler([0, 1, 2], 3, False)
    list(DataLoader([1, 2, 3], batch_sampler=sampler))
    assert [each["batch_size"] for each in settings().values()] == [3]


def test_a_program_that_makes_loaders_without_end_has_few_facts(watch: Callable[[], Run]) -> None:
    alive = [made([number, number]) for number in range(40)]
    for each in alive:
        list(each)
    assert len(settings()) == loader._MAX_FACTS
