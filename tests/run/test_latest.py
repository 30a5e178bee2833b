"""The link to the newest comparison: always the last one, never over something that is no link."""

from __future__ import annotations

from pathlib import Path

from profiler.run.store import point_latest


def test_it_names_the_newest(tmp_path: Path) -> None:
    link = tmp_path / "reports" / "runs" / "latest"
    for name in ("one", "two"):
        directory = link.parent / name
        directory.mkdir(parents=True)
        (directory / "compare.html").write_text(name)
        assert point_latest(link, directory) == ""
        assert (link / "compare.html").read_text() == name
    assert link.readlink() == Path("two"), "relative, so that the folder of runs can be moved"
    assert sorted(path.name for path in link.parent.iterdir()) == ["latest", "one", "two"]


def test_it_reaches_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "reports" / "runs" / "latest"
    assert point_latest(link, tmp_path / "elsewhere") == ""
    assert link.resolve() == tmp_path / "elsewhere"


def test_a_link_to_what_is_gone_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("gone")
    (tmp_path / "new").mkdir()
    assert point_latest(tmp_path / "latest", tmp_path / "new") == ""
    assert (tmp_path / "latest").readlink() == Path("new")


def test_a_real_directory_stays_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "mine").touch()
    problem = point_latest(tmp_path / "latest", tmp_path / "new")
    assert problem == f"{tmp_path}/latest is not a link and stays as it is; the newest is {tmp_path}/new"
    assert (tmp_path / "latest" / "mine").exists()


def test_where_no_link_can_be_made_the_reason_is_given(tmp_path: Path) -> None:
    (tmp_path / "reports").touch()
    problem = point_latest(tmp_path / "reports" / "runs" / "latest", tmp_path / "new")
    assert "cannot be made: Not a directory" in problem
