"""Opens a check's page in Chromium: quiet, alone, fitting and readable, and text stays text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler.check.outputs.page import gate_report
from profiler.report.build import build_report
from profiler.report.render import html
from tests.browser import browsing
from tests.check.outputs import results
from tests.report import samples

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(browsing.executable() is None, reason=f"none of {', '.join(browsing.NAMES)} is on PATH"),
]
CONTRAST = (Path(browsing.__file__).parent / "contrast.js").read_text(encoding="utf-8")
BEYOND = """() => [...document.querySelectorAll('.scroll')]
    .filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.getAttribute('aria-label'))"""
FIGURES = """() => [...document.querySelectorAll('svg.plot')].filter((svg) => {
    const own = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].some((one) => {
        const box = one.getBoundingClientRect();
        return box.left < own.left - 1 || box.right > own.right + 1 || box.top < own.top - 1;
    });
}).length"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, paths = tmp_path_factory.mktemp("checks"), {}
    reports = {name: gate_report(result) for name, result in results.everything().items()}
    reports["with comparison"] = gate_report(results.failed(), build_report(samples.comparison()).sections)
    for name, report in reports.items():
        paths[name] = folder / f"{name}.html"
        paths[name].write_text(html.render(report), encoding="utf-8")
    return paths


@pytest.mark.parametrize(
    "name",
    [
        "failed with changes",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("passed", "failed", "inconclusive", "hostile", "other machine", "with comparison")
        ),
    ],
)
def test_a_page_is_quiet_fits_and_can_be_read(chromium: Any, files: dict[str, Path], name: str) -> None:
    with browsing.opened(chromium, files[name]) as watched:
        page = watched.page
        for scheme in ("light", "dark") if name in {"passed", "failed with changes", "inconclusive"} else ():
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert page.evaluate(CONTRAST) == [], scheme
        for width in (1440, 420):
            page.set_viewport_size({"width": width, "height": 900})
            assert watched.overflow() <= 0, width
            assert page.evaluate(BEYOND) == [], f"a column is hidden beyond its table's edge at {width} px"
            assert name == "hostile" or page.evaluate(FIGURES) == 0, f"a label leaves its figure at {width} px"
        assert watched.complaints == []
        assert len(watched.requests) == 1, watched.requests


@pytest.mark.slow
def test_the_state_is_a_word_in_its_colour(chromium: Any, files: dict[str, Path]) -> None:
    colours = {}
    for name in ("passed", "failed", "inconclusive"):
        with browsing.opened(chromium, files[name]) as watched:
            word = watched.page.locator(".first h1 em").first
            colours[word.inner_text()] = word.evaluate("(word) => getComputedStyle(word).color")
    assert set(colours) == {"PASS", "FAIL", "INCONCLUSIVE"}
    assert len(set(colours.values())) == 3, colours
