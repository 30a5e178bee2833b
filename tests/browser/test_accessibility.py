"""Pages have no violation of the rules of axe-core, in both colour schemes and with all groups opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler.report.render import html
from profiler.report.write import rendered
from tests.browser import browsing
from tests.check.outputs import results
from tests.report import hook_samples, ladders, samples

axe = pytest.importorskip("axe_playwright_python.base", reason="axe-playwright-python is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(browsing.executable() is None, reason=f"none of {', '.join(browsing.NAMES)} is on PATH"),
]
CHECK = """async () => {
    const found = await axe.run(document, { resultTypes: ['violations', 'incomplete'] });
    const unclear = found.incomplete.filter((rule) => rule.id !== 'color-contrast');
    return [...found.violations, ...unclear].map((rule) => `${rule.id}: ${rule.nodes[0].html}`);
}"""
"""axe-core cannot tell what is behind a text in SVG or on a hatched bar; contrast.js measures the contrast of those."""


def _page(name: str) -> str:
    if name == "gate":
        from profiler.check.outputs.page import gate_report

        return html.render(gate_report(results.everything()["failed with changes"]))
    makes = {"comparison": samples.comparison, "run": hook_samples.run, "ladder": ladders.with_ladder}
    return rendered(makes[name](), "html")


@pytest.mark.parametrize("name", ["comparison", "run", "ladder", "gate"])
def test_a_page_can_be_used_by_everyone(chromium: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(_page(name), encoding="utf-8")
    for scheme in ("light", "dark"):
        with browsing.opened(chromium, path, scheme=scheme) as watched:
            watched.page.evaluate(axe.AXE_FILE_PATH.read_text(encoding="utf-8"))
            assert watched.page.evaluate(CHECK) == [], scheme
