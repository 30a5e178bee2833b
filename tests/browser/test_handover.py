"""The timeline in a report: nothing leaves the page before the click, and after it Perfetto's page gets the trace."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from profiler.report.write import write_comparison
from tests.browser import browsing
from tests.report import samples

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(browsing.executable() is None, reason=f"none of {', '.join(browsing.NAMES)} is on PATH"),
]
PERFETTO = "https://ui.perfetto.dev/"
ANSWERS = """<!doctype html><title>stand-in</title><script>
addEventListener("message", async (event) => {
  if (event.data === "PING") {
    window.pings = (window.pings || 0) + 1;
    if (window.pings >= 2) event.source.postMessage("PONG", "*");  // the first is lost on a page that is not ready
    return;
  }
  const { buffer, title } = event.data.perfetto;
  window.got = { title, origin: event.origin, base64: btoa(String.fromCharCode(...new Uint8Array(buffer))) };
});
</script>"""
"""Stands for the page of Perfetto: answers as it does, and keeps what it is given."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_comparison(samples.comparison(), tmp_path_factory.mktemp("report"))


def serve(page: Any, body: str) -> list[str]:
    """Answer every request of the window to a network with `body`; returns the addresses of the requests."""
    requests: list[str] = []

    def answer(route: Any) -> None:
        requests.append(route.request.url)
        route.fulfill(status=200, content_type="text/html", body=body)

    page.context.route("http*://**/*", answer)
    return requests


def test_the_page_sends_no_request_before_the_click(chromium: Any, report: Path) -> None:
    with browsing.opened(chromium, report) as watched:
        requests = serve(watched.page, ANSWERS)
        button = watched.page.locator("#timeline button").first
        button.scroll_into_view_if_needed()
        button.hover()
        button.focus()
        assert button.is_visible()
        assert button.inner_text() == "Open the timeline in Perfetto"
        assert requests == []
        assert [address for address in watched.requests if not address.startswith("file://")] == []
        text = watched.page.locator("#timeline .fine").first.inner_text()
        assert "sends nothing by itself" in text
        assert "loads the page ui.perfetto.dev from the network" in text


@pytest.mark.parametrize("side", [0, 1])
def test_the_click_hands_the_trace_of_that_side_over(chromium: Any, report: Path, side: int) -> None:
    with browsing.opened(chromium, report) as watched:
        page = watched.page
        requests = serve(page, ANSWERS)
        box = page.locator("#timeline [data-handover]").nth(side)
        with page.expect_popup() as opened:
            box.locator("button").click()
        tab = opened.value
        tab.wait_for_function("window.got")
        got = tab.evaluate("window.got")
        assert tab.url == PERFETTO
        assert requests == [PERFETTO], "its page, and nothing else"
        label = ("as-found", "fixed")[side]
        assert got["title"] == f"{label}: steps 41 to 60 of 100, 1.20 s"
        assert json.loads(gzip.decompress(base64.b64decode(got["base64"]))) == {"traceEvents": []}
        box.locator("output", has_text="Handed over").wait_for()
        pings = tab.evaluate("window.pings")
        page.wait_for_timeout(250)
        assert tab.evaluate("window.pings") == pings, "it knocks on although it was answered"
        assert watched.complaints == []


def test_another_page_that_answers_gets_nothing(chromium: Any, report: Path) -> None:
    """The tab may be led elsewhere before it answers: only ui.perfetto.dev is given the trace."""
    with browsing.opened(chromium, report) as watched:
        page = watched.page
        page.context.route(
            "http*://**/*",
            lambda route: route.fulfill(
                status=200,
                content_type="text/html",
                body=ANSWERS
                if "elsewhere" in route.request.url
                else "<!doctype html><script>location.href = 'https://elsewhere.example/'</script>",
            ),
        )
        with page.expect_popup() as opened:
            page.locator("#timeline button").first.click()
        tab = opened.value
        tab.wait_for_url("https://elsewhere.example/")
        tab.wait_for_function("window.pings >= 4")
        assert tab.evaluate("window.got") is None
        tab.close()
        page.locator("#timeline output", has_text="The tab was closed").first.wait_for()
