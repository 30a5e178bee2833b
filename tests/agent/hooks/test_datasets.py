"""Hugging Face datasets: a region for each read and for a map, rows as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler.agent.hooks import datasets
from tests.fakes.watched import regions, watched


@pytest.fixture
def rows() -> Any:
    """A dataset of three rows in memory."""
    pytest.importorskip("datasets")
    from datasets import Dataset

    return Dataset.from_dict({"n": [1, 2, 3]})


def test_reads(tmp_path: Path, rows: Any) -> None:
    from datasets import arrow_dataset

    with watched(tmp_path, (datasets.PLUGIN, arrow_dataset)) as loaded:
        assert rows[1] == {"n": 2}
        assert rows.__getitems__([0, 2]) == [{"n": 1}, {"n": 3}]
        assert [row["n"] for row in rows] == [1, 2, 3]
        assert regions(loaded()) == ["dataset"] * (2 + 4), "the last one found the end"


def test_a_map_is_one_region(tmp_path: Path, rows: Any) -> None:
    from datasets import arrow_dataset

    with watched(tmp_path, (datasets.PLUGIN, arrow_dataset)) as loaded:
        mapped = rows.map(lambda row: {"n": row["n"] + rows[0]["n"]}, load_from_cache_file=False)
        run = loaded()
    assert mapped["n"][:] == [2, 3, 4]
    assert regions(run) == ["dataset map"]


def test_a_stream(tmp_path: Path, rows: Any) -> None:
    from datasets import iterable_dataset

    stream = rows.to_iterable_dataset().map(lambda row: {"n": 10 * row["n"]})
    with watched(tmp_path, (datasets.PLUGIN, iterable_dataset)) as loaded:
        iterator = iter(stream)
        assert next(iterator) == {"n": 10}
        iterator.close()
        assert regions(loaded()) == ["dataset"]


def test_an_error_leaves_the_watch_open_for_the_next_read(tmp_path: Path, rows: Any) -> None:
    from datasets import arrow_dataset

    with watched(tmp_path, (datasets.PLUGIN, arrow_dataset)) as loaded:
        with pytest.raises(IndexError):
            rows[3]
        rows[2]
        assert regions(loaded()) == ["dataset"] * 2
