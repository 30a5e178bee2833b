"""The page: one file, closed tags, unique ids, no address outside itself, hostile text stays text, same bytes again."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from profiler.report.blocks import (
    Action,
    Cell,
    CodePlace,
    Column,
    FirstScreen,
    Frame,
    Headline,
    Report,
    Section,
    Table,
    Text,
)
from profiler.report.build import build_report
from profiler.report.model import Results
from profiler.report.render import html
from tests.report import samples
from tests.report.pages import Page, read
from tests.report.test_build import SUBJECTS

LIMIT = 500_000
"""Bytes of a made-up report; a real one may have four times as many."""


@pytest.fixture(scope="module", params=SUBJECTS, ids=lambda make: make.__name__)
def page_text(request: pytest.FixtureRequest) -> str:
    make: Callable[[], Results] = request.param
    return html.render(build_report(make()))


@pytest.fixture(scope="module")
def page(page_text: str) -> Page:
    return read(page_text)


def test_tags_close_and_ids_are_unique_and_links_lead_somewhere(page: Page) -> None:
    assert page.unclosed == []
    ids = page.values("id")
    assert len(ids) == len(set(ids)), sorted({name for name in ids if ids.count(name) > 1})
    targets = {href[1:] for href in page.values("href") if href.startswith("#")}
    used = set(re.findall(r"url\(#([^)]+)\)", " ".join(page.values("clip-path"))))
    assert targets | used <= set(ids)


def test_the_page_stands_alone(page: Page, page_text: str) -> None:
    assert len(page_text.encode()) <= LIMIT
    assert [href for href in page.values("href") if not href.startswith(("#", "data:,"))] == []
    assert {tag for tag, name, _ in page.attributes if name in {"src", "srcset", "action", "poster"}} == set()
    assert not re.search(r"@import|@font-face|url\((?!#)", page_text)
    assert not set(page.tags) & {"iframe", "object", "embed", "img", "base", "form"}
    policy = next(value for value in page.values("content") if "default-src" in value)
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:")
    assert [name for _, name, _ in page.attributes if name.startswith("on")] == []
    data = [value for tag, name, value in page.attributes if (tag, name) == ("script", "type")]
    assert set(data) <= {"application/zlib"}
    assert page.tags.count("script") == 1 + len(data)


def test_structure_for_readers_who_listen(page: Page) -> None:
    assert page.tags.count("h1") == page.tags.count("main") == 1
    assert page.tags.count("caption") == page.tags.count("table")
    assert page.tags.count("figcaption") == page.tags.count("figure")
    labels = [value for tag, name, value in page.attributes if tag == "figure" and name == "aria-label"]
    assert all(labels)
    assert len(labels) == [tag for tag, name, _ in page.attributes if name == "role"].count("figure")


def test_hostile_text_stays_text_and_long_paths_are_whole_in_a_title() -> None:
    text = html.render(build_report(samples.comparison(after=samples.HOSTILE)))
    page = read(text)
    assert samples.HOSTILE in page.text
    for attribute in ("title", "aria-label"):
        assert any(samples.HOSTILE in value for value in page.values(attribute))
    assert any(samples.HOSTILE_ATTRIBUTE in value for value in page.values("title"))
    data = [value for tag, name, value in page.attributes if (tag, name) == ("script", "type")]
    assert set(data) <= {"application/zlib"}
    assert page.tags.count("script") == 1 + len(data)
    assert "img" not in page.tags
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text
    assert f'title="{samples.LONG_PATH}:104"' in text


def test_same_bytes_in_another_process() -> None:
    code = (
        "import sys, hashlib; from tests.report import samples;"
        "from profiler.report.build import build_report; from profiler.report.render import html;"
        "print(hashlib.sha256(html.render(build_report(samples.comparison())).encode()).hexdigest())"
    )
    command, environment = [sys.executable, "-c", code], {"PYTHONPATH": "."}
    hashes = {
        subprocess.run(command, capture_output=True, check=True, env={**environment, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1, hashes


def test_small_and_empty_reports_render() -> None:
    assert "nothing here" in html.render(Report("t", "s", (Section("k", "nothing here", (Text("x"),)),)))
    assert read(html.render(Report("t", "s", ()))).unclosed == []


def test_tints_follow_files_and_leans() -> None:
    same, other = (html.flame_tint(Frame("f", 1.0, "", where), False) for where in ("/a.py:1", "/a.py:99"))
    assert same == other
    assert html.flame_tint(Frame("f", 1.0, ""), False) == "tnone"
    leans = [html.flame_tint(Frame("f", 1.0, "", lean=lean), True) for lean in (-1.0, 0.0, 1.0)]
    assert leans == ["lean-3", "lean0", "lean3"]


def test_the_caption_of_a_first_table_stands_beside_the_title_of_its_section() -> None:
    table = Table("what it <b>shows</b>", (Column("a"), Column("b")), ((Cell("x"), Cell("y")),))
    sections = (Section("k", "Title", (table, table), group="time"),)
    text = html.render(Report("t", "s", sections))
    assert 'Title <small aria-hidden="true">what it &lt;b&gt;shows&lt;/b&gt;</small></h3>' in text
    assert text.count("<caption") == 2, "a screen reader names each table"
    assert text.count('<caption class="unseen">') == 1


def test_of_several_tables_of_lines_in_a_section_fewer_rows_are_shown_at_first() -> None:
    rows = tuple((Cell("x.py:1", code=True, title="/x.py:1", source="f()"), Cell("y")) for _ in range(9))
    table = Table("lines", (Column("a"), Column("b", number=True)), rows)
    one, two = (html.render(Report("t", "s", (Section("k", "k", (table,) * n, group="code"),))) for n in (1, 2))
    assert one.count(f'data-first="{html.LOCATION_ROWS}"><summary>All 9 rows') == 1
    assert two.count(f'data-first="{html.LEAST_ROWS}"><summary>All 9 rows') == 2


def test_the_bar_of_a_line_is_its_share_of_all() -> None:
    places = (CodePlace(0.5, "a.py:1"), CodePlace(0.125, "a.py:2"))
    text = html.render(Report("t", "s", (), FirstScreen((), Headline("h"), places=places)))
    assert re.findall(r'<i><i style="width:([\d.]+)%">', text) == ["50.0", "12.5"]


def test_a_long_command_is_whole_in_the_page() -> None:
    command = " ".join(f"--option-{number}=value" for number in range(30))
    text = html.render(Report("t", "s", (), FirstScreen((), Headline("h"), actions=(Action("do", command=command),))))
    shown = re.search(r'<code class="command" title="[^"]*">(.*?)</code>', text, re.DOTALL)
    assert shown is not None
    assert " ".join(re.sub(r"<[^>]+>", " ", shown[1]).split()) == command


def test_sections_are_in_closed_groups_and_long_tables_begin_with_their_first_rows() -> None:
    text = html.render(build_report(samples.comparison()))
    page = read(text)
    topics = re.findall(r'<details class="topic" id="group-(\w+)">', text)
    assert topics == ["time", "device", "code", "evidence"]
    assert "open" not in [name for tag, name, _ in page.attributes if tag == "details"]
    rows = tuple((Cell(f"row {number}"), Cell("x")) for number in range(html.TABLE_ROWS + 2))
    table = Table("many", (Column("a"), Column("b", number=True)), rows)
    long = html.render(Report("t", "s", (Section("k", "k", (table,)),)))
    short = html.render(Report("t", "s", (Section("k", "k", (replace(table, rows=rows[:-1]),)),)))
    assert "All 10 rows" in long
    assert long.count("<tr") - 1 == len(rows), "hidden rows are in the page"
    assert "All " not in short
    assert f"nth-child(n + {html.TABLE_ROWS + 1})" in text, "page.css hides the same rows"
