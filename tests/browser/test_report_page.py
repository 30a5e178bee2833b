"""Opens reports in Chromium: quiet, alone, fitting, sortable, zoomable, and text stays text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profiler.report.blocks import Flame, Frame, Report, Section
from profiler.report.model import Results
from profiler.report.render import html
from profiler.report.write import first_screen_html, rendered
from tests.browser import browsing
from tests.report import hook_samples, ladders, samples

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(browsing.executable() is None, reason=f"none of {', '.join(browsing.NAMES)} is on PATH"),
]
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
WIDTHS = (1440, 420)
GOES_ON_BEYOND = """() => [...document.querySelectorAll('.scroll')]
    .filter((box) => box.scrollWidth > box.clientWidth + 1)
    .map((box) => `${box.getAttribute('aria-label')}: ${box.scrollWidth} of ${box.clientWidth} px`)"""
SCHEMES = ("light", "dark")
RESULTS: dict[str, Callable[[], Results]] = {
    "comparison": lambda: samples.comparison(after=samples.HOSTILE),
    "three sides": samples.three_sides,
    "empty": samples.empty_comparison,
    "ladder": ladders.with_ladder,
    "learning": ladders.learner,
    "run": samples.analysis,
    "found steps": hook_samples.run,
    "found sides": hook_samples.comparison,
}


QUICK = {"comparison", "found steps"}
"""A comparison, and a run with findings: between them they have nearly all kinds of blocks."""


class Pages(dict[str, Path]):
    """Each page is rendered when a test first opens it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> Path:
        self[name] = self.folder / f"{name}.html"
        self[name].write_text(rendered(RESULTS[name](), "html"), encoding="utf-8")
        return self[name]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("reports"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in RESULTS]
)
def test_a_page_is_quiet_fits_and_can_be_read(chromium: Any, files: dict[str, Path], name: str) -> None:
    """At both widths and in both colour schemes; contrast as WCAG 2.1 asks: 4.5, or 3 where the text is large."""
    with browsing.opened(chromium, files[name]) as watched:
        page = watched.page
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            dark = sum(map(int, background.removeprefix("rgb(").removesuffix(")").split(","))) < 3 * 128
            assert dark == (scheme == "dark"), background
            assert page.evaluate(CONTRAST) == [], scheme
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
            page.wait_for_function("window.scrollY > 0")
            assert watched.overflow() <= 0, (width, wide_elements(page))
            assert page.evaluate(GOES_ON_BEYOND) == [], f"a column is hidden beyond its table's edge at {width} px"
        assert watched.complaints == []
        assert len(watched.requests) == 1, watched.requests


def wide_elements(page: Any) -> list[str]:
    """The elements that are wider than the page, for the failure message."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('body *')]
        .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, .well, .contents'))
        .map((e) => `${e.tagName}.${e.className} ${Math.round(e.getBoundingClientRect().right)}`).slice(0, 8)"""
    )
    return found


def test_on_a_phone_a_line_stands_over_its_bar_and_its_numbers(chromium: Any, files: dict[str, Path]) -> None:
    with browsing.opened(chromium, files["found steps"], width=420) as watched:
        table = watched.page.locator("#lines table.stacks")
        row = table.locator("tbody tr").first
        line, took, share, words = (
            row.locator(one).bounding_box() for one in ("th", "td >> nth=0", "td >> nth=1", "td >> nth=2")
        )
        assert line["y"] + line["height"] < took["y"] == share["y"] < words["y"]
        assert took["x"] + took["width"] < share["x"]
        assert row.locator("td").first.inner_text().strip() == "60.0ms"
        drawn = row.evaluate("(r) => getComputedStyle(r, '::before').backgroundSize")
        assert drawn.startswith("60%"), drawn
        table.locator("thead button", has_text="Time").click()
        sizes = table.evaluate("(t) => [...t.tBodies[0].rows].map((r) => Number(r.cells[1].dataset.sort))")
        assert sizes == sorted(sizes, reverse=True)
    with browsing.opened(chromium, files["found steps"], width=1440) as watched:
        row = watched.page.locator("#lines table.stacks tbody tr").first
        assert row.evaluate("(r) => getComputedStyle(r).display") == "table-row", "a wide window keeps the table"
        assert row.evaluate("(r) => getComputedStyle(r, '::before').content") == "none"


@pytest.mark.slow
def test_a_row_that_goes_on_shows_its_name_where_it_may_stand_elsewhere(chromium: Any, files: dict[str, Path]) -> None:
    names = "(t) => [...t.querySelectorAll('.again')].map((one) => one.getBoundingClientRect().width > 40)"
    for width, shown in ((1440, False), (420, True)):
        with browsing.opened(chromium, files["found steps"], width=width) as watched:
            table = watched.page.locator("#outside table").first
            assert table.evaluate(names) == [shown] * 2
            table.locator("thead button", has_text="Line").click()
            assert table.evaluate(names) == [True] * 2, "sorted, the row above is another's"
            rows = "(t) => [...t.tBodies[0].rows].map((r) => r.cells[0].textContent)"
            table.locator("thead button", has_text="Period").click()
            assert table.evaluate(rows) == ["after the last step"] + ["before the first step"] * 3
            assert watched.overflow() <= 0


def test_the_table_sorts_and_says_so(chromium: Any, files: dict[str, Path]) -> None:
    with browsing.opened(chromium, files["comparison"]) as watched:
        page = watched.page
        table = page.locator("#hot table").first
        head = table.locator("thead th").nth(3)
        column = "(t) => [...t.tBodies[0].rows].map((r) => Number(r.cells[3].dataset.sort))"
        head.locator("button").click()
        falling = table.evaluate(column)
        assert falling == sorted(falling, reverse=True)
        assert head.get_attribute("aria-sort") == "descending"
        head.locator("button").focus()
        page.keyboard.press("Enter")
        rising = table.evaluate(column)
        assert rising == sorted(rising) != falling
        assert head.get_attribute("aria-sort") == "ascending"
        assert table.locator("[aria-sort]").count() == 1
    with browsing.opened(chromium, files["ladder"]) as watched:
        missing = watched.page.locator("#learning table").first
        absent = "(t) => [...t.tBodies[0].rows].map((r) => r.cells[5].hasAttribute('data-none') ? 1 : 0)"
        assert missing.evaluate(absent) == [0, 1, 1, 0]
        for _ in range(2):  # what was not measured comes last in both directions
            missing.locator("thead th").nth(5).locator("button").click()
            assert missing.evaluate(absent) == [0, 0, 1, 1]


def test_flame_graph_zooms_searches_and_comes_back(chromium: Any, files: dict[str, Path]) -> None:
    with browsing.opened(chromium, files["comparison"]) as watched:
        figure = watched.page.locator("[data-flame]").first
        frame = figure.locator(".fr", has_text="recurrent_step").first
        whole = figure.locator(".graph").evaluate("(g) => g.clientWidth")
        before = frame.bounding_box()["width"]
        shown = figure.locator(".fr:visible").count()
        frame.click()
        assert before < 0.5 * whole
        assert frame.bounding_box()["width"] == pytest.approx(whole, abs=2)
        assert figure.locator(".fr:visible").count() < shown
        assert "as_found.py:71" in figure.locator("output").inner_text()
        watched.page.keyboard.press("Escape")
        assert frame.bounding_box()["width"] == pytest.approx(before, abs=1)
        assert figure.locator(".fr:visible").count() == shown
        figure.locator("input").fill("synchronize")
        assert figure.locator(".fr.hit").count() == 1
        assert "1 frame matches, 23.6%" in figure.locator("output").inner_text()
        frame.click()
        figure.locator("[data-reset]").click()
        assert frame.bounding_box()["width"] == pytest.approx(before, abs=1)


def test_a_chain_of_calls_opens_while_it_is_zoomed(chromium: Any, tmp_path: Path) -> None:
    calls = Frame("main", 9.0, "", "a.py:1", children=(Frame("<b>run</b>", 9.0, "", "a.py:2", "run()"),))
    root = Frame("all", 10.0, "", children=(calls, Frame("other", 1.0, "")))
    path = tmp_path / "page.html"
    path.write_text(html.render(Report("t", "s", (Section("flame", "k", (Flame("f", root),)),))))
    with browsing.opened(chromium, path) as watched:
        boxes = watched.page.locator("[data-flame] .fr:visible")
        assert boxes.all_inner_texts() == ["all", "main → <b>run</b>", "other"]
        boxes.nth(1).click()
        assert boxes.all_inner_texts() == ["all", "main a.py:1", "<b>run</b> a.py:2 run()"]
        tops = [box.bounding_box()["y"] for box in boxes.all()]
        assert tops == sorted(set(tops)), "each has a row"
        watched.page.keyboard.press("Escape")
        assert boxes.all_inner_texts() == ["all", "main → <b>run</b>", "other"]
        assert watched.page.locator("[data-flame] b").count() == 0
        assert watched.complaints == []


def _flame_of_a_step() -> Flame:
    """A loader that is called in the middle of a step, and a function that two others call."""
    read = Frame("read", 2.0, "", "data.py:7", "return open(path)")
    load = Frame("load", 3.0, "", "data.py:2", position=0.5, children=(read,))
    work = Frame("work", 5.0, "", "a.py:3", position=0.1, children=(Frame("read", 1.0, "", "data.py:8"),))
    main = Frame("main", 10.0, "", "a.py:1", children=(work, load, Frame("end", 2.0, "", "a.py:9", position=0.9)))
    return Flame("f", Frame("all", 10.0, "", children=(main,)))


def test_a_flame_graph_has_the_order_of_a_step(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(html.render(Report("t", "s", (Section("flame", "k", (_flame_of_a_step(),)),))))
    left = "(nodes) => nodes.map((n) => [n.textContent, Math.round(n.getBoundingClientRect().left)])"
    with browsing.opened(chromium, path) as watched:
        figure = watched.page.locator("[data-flame]")

        def order(names: tuple[str, ...]) -> list[str]:
            found = dict(figure.locator(".fr").evaluate_all(left))
            return sorted(names, key=lambda name: found[name])

        assert order(("work", "load → read", "load", "end")[::3]) == ["work", "end"]
        before = figure.locator(".fr", has_text="end").bounding_box()["x"]
        figure.locator("select").select_option("as in a step")
        assert order(("end", "load", "work")) == ["work", "load", "end"]
        figure.locator("select").select_option("most time first")
        assert figure.locator(".fr", has_text="end").bounding_box()["x"] == before
        assert watched.complaints == []


@pytest.mark.slow
def test_a_function_has_its_callers_above_and_its_callees_below(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(html.render(Report("t", "s", (Section("flame", "k", (_flame_of_a_step(),)),))))
    with browsing.opened(chromium, path) as watched:
        figure = watched.page.locator("[data-flame]")
        about = figure.locator("[data-function]")
        assert about.is_disabled()
        figure.locator(".fr", has_text="read").first.click()
        about.click()
        frames = figure.locator(".fr")
        texts = frames.all_inner_texts()
        assert texts[0] == "read"
        assert sorted(texts[1:]) == ["main → load", "main → work"], "the outermost caller first"
        tops = dict(zip(texts, (box.bounding_box()["y"] for box in frames.all()), strict=True))
        assert tops["main → work"] == tops["main → load"] < tops["read"]
        assert "30.0% of the time" in frames.first.get_attribute("title"), "both calls of it together"
        figure.locator(".fr", has_text="main → load").click()
        assert frames.first.inner_text() == "load"
        assert frames.last.inner_text() == "read", "now a callee"
        watched.page.keyboard.press("Escape")
        assert frames.first.inner_text() == "all"
        assert watched.complaints == []


@pytest.mark.slow
def test_the_flame_graph_keeps_still_under_the_pointer(chromium: Any, files: dict[str, Path]) -> None:
    with browsing.opened(chromium, files["comparison"]) as watched:
        page = watched.page
        graph = page.locator("[data-flame] .graph").first
        long, short = page.locator(".fr", has_text="<script>").first, page.locator(".fr", has_text="main").first
        top = "(g) => g.getBoundingClientRect().top + scrollY"
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            graph.scroll_into_view_if_needed()
            before = graph.evaluate(top)
            for frame in (long, short, long):
                frame.dispatch_event("mouseover")
                assert graph.evaluate(top) == before


def test_flame_graph_by_keyboard(chromium: Any, files: dict[str, Path]) -> None:
    with browsing.opened(chromium, files["comparison"]) as watched:
        figure = watched.page.locator("[data-flame]").first
        figure.locator(".fr").first.focus()
        labels = []
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Enter"):
            watched.page.keyboard.press(key)
            labels.append(watched.page.evaluate("document.activeElement.textContent"))
        assert labels == ["main", "learn_chunk", "tokenize", "learn_chunk", "main", "learn_chunk", "learn_chunk"]
        zoom = figure.locator(".graph").evaluate("(g) => Number(g.style.getPropertyValue('--zw'))")
        assert zoom == pytest.approx(0.171 / 0.1865, abs=1e-3)


def test_the_theme_can_be_changed(chromium: Any, files: dict[str, Path]) -> None:
    with browsing.opened(chromium, files["run"], scheme="light") as watched:
        background = "getComputedStyle(document.body).backgroundColor"
        light = watched.page.evaluate(background)
        watched.page.locator("#theme").click()
        dark = watched.page.evaluate(background)
        assert light != dark
        watched.page.locator("#theme").click()
        assert watched.page.evaluate(background) == light


def test_hostile_names_stay_text(chromium: Any, files: dict[str, Path]) -> None:
    with browsing.opened(chromium, files["comparison"]) as watched:
        page = watched.page
        assert watched.complaints == []
        assert page.title() == "SYNTHETIC: as-found and fixed"
        assert page.locator("script:not([type])").count() == 1
        assert page.locator("img").count() == 0
        assert samples.HOSTILE in page.locator("h1").inner_text()
        page.locator(".fr", has_text="<script>").first.click()
        page.locator("[data-flame] input").first.fill(samples.HOSTILE_ATTRIBUTE)
        assert page.locator("script:not([type])").count() == 1
        assert page.locator("img").count() == 0
        assert watched.complaints == []


@pytest.mark.parametrize("width", [420, pytest.param(1440, marks=pytest.mark.slow)])
def test_the_waterfall_is_readable(chromium: Any, files: dict[str, Path], width: int) -> None:
    """Names and factors do not lie on each other, bars stay on their track, gridlines stand over their labels."""
    with browsing.opened(chromium, files["ladder"], width=width) as watched:
        figure = watched.page.locator("#ladder .falls")
        boxes = figure.locator(".stair").evaluate_all(
            """(rows) => rows.map((row) => ['.name', '.worth', '.track'].map((one) => {
                const range = document.createRange(), e = row.querySelector(one);
                range.selectNodeContents(e);
                const text = (one === '.track' ? e : range).getBoundingClientRect();
                return [text.left, text.top, text.right, text.bottom];
            }))"""
        )
        assert len(boxes) == 14
        for several in boxes:
            for index, a in enumerate(several):
                for b in several[index + 1 :]:
                    apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] + 1 or b[3] <= a[1] + 1
                    assert apart, several
        outside = figure.evaluate(
            """(f) => [...f.querySelectorAll('.track i')].filter((i) => i.checkVisibility()).filter((i) => {
                const a = i.getBoundingClientRect(), t = i.parentElement.getBoundingClientRect();
                return a.left < t.left - 6 || a.right > t.right + 6;
            }).length"""
        )
        assert outside == 0
        axis, track = (figure.locator(one).first.bounding_box() for one in (".axis div", ".track"))
        assert (axis["x"], axis["width"]) == pytest.approx((track["x"], track["width"]), abs=1)
        sizes = figure.evaluate(
            "(f) => [...f.querySelectorAll('*')].map((e) => parseFloat(getComputedStyle(e).fontSize))"
        )
        assert min(sizes) >= 12


def test_without_script(chromium: Any, files: dict[str, Path]) -> None:
    with browsing.opened(chromium, files["comparison"], script=False) as watched:
        page = watched.page
        assert page.locator("main details.topic").count() == 4
        assert page.locator(".fr").first.is_visible()
        assert not page.locator(".tools").first.is_visible()
        assert not page.locator("#theme").is_visible()
        assert page.locator("button:visible").count() == 0
        assert "1.06M" in page.locator("#numbers").inner_text()
        assert "Same results" in page.locator("#verdict").inner_text()


def test_groups_are_closed_and_a_link_opens_the_one_that_holds_its_section(
    chromium: Any, files: dict[str, Path]
) -> None:
    with browsing.opened(chromium, files["comparison"], groups=False) as watched:
        page = watched.page
        assert page.locator("h1").is_visible()
        assert page.locator("details.topic[open]").count() == 0
        page.locator("#group-code > summary").focus()
        page.keyboard.press("Enter")
        assert page.locator("#flame").is_visible()
        page.evaluate("location.hash = 'hot'")
        page.wait_for_function("document.getElementById('group-device').open")
        assert page.locator("#hot").is_visible()


@pytest.mark.slow
def test_a_printed_report_has_at_most_four_pages(chromium: Any, files: dict[str, Path]) -> None:
    for name in ("comparison", "found steps"):
        with browsing.opened(chromium, files[name], groups=False) as watched:
            assert 1 <= watched.page.pdf(format="A4").count(b"/Type /Page\n") <= 4, name


def test_a_first_screen_that_loads_in_a_hidden_tab_of_a_notebook_has_a_height(chromium: Any, tmp_path: Path) -> None:
    frame = first_screen_html(hook_samples.run())
    page = tmp_path / "notebook.html"
    page.write_text(f"<div>{frame}</div><div style='display: none'>{frame}</div>", encoding="utf-8")
    with browsing.opened(chromium, page, width=420, groups=False) as watched:
        heights = "[...document.querySelectorAll('iframe')].map((frame) => frame.style.height)"
        shown, hidden = watched.page.evaluate(heights)
    assert hidden == "760px"
    assert int(shown.removesuffix("px")) > 760, "the height of its content"
