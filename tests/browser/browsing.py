"""Opens a report in the system's Chromium and watches what it does; used by the test and by shots.py."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# no sandbox: root in a container has none; the rest keeps the browser itself off the network
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-pings",
)
MOST_MS = 180_000
"""For the browser to start, and for each thing waited for: on a busy machine the start alone took 20 s."""


def executable() -> str | None:
    """Path of the first Chromium on PATH."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


@dataclass
class Watched:
    """An open page and everything that it should not have done."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    """Console errors and warnings, uncaught exceptions, dialogs."""
    requests: list[str] = field(default_factory=list)
    """Addresses of all requests."""

    def open_groups(self) -> None:
        """Open every closed group of sections."""
        self.page.evaluate("document.querySelectorAll('details.topic').forEach((box) => { box.open = true; })")

    def overflow(self) -> int:
        """CSS pixels by which the page is wider than the window."""
        pixels: int = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return pixels


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    path = executable()
    if path is None:
        raise RuntimeError(f"none of {', '.join(NAMES)} is on PATH")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS), timeout=MOST_MS)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(
    started: Any,
    file: Path,
    *,
    width: int = 1440,
    height: int = 900,
    scheme: str = "light",
    script: bool = True,
    groups: bool = True,
) -> Iterator[Watched]:
    """`file` in a window of its own.

    :param groups: open every group of its sections.
    """
    context = started.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion="reduce",
        java_script_enabled=script,
    )
    context.set_default_timeout(MOST_MS)
    watched = Watched(context.new_page())
    page = watched.page
    page.on("request", lambda request: watched.requests.append(request.url))
    page.on("pageerror", lambda error: watched.complaints.append(f"exception: {error}"))
    page.on("console", lambda message: _heard(watched, message))
    page.on("dialog", lambda dialog: (watched.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    try:
        page.goto(file.resolve().as_uri(), wait_until="load")
        if groups:
            watched.open_groups()
        yield watched
    finally:
        context.close()


def _heard(watched: Watched, message: Any) -> None:
    if message.type in {"error", "warning"}:
        watched.complaints.append(f"{message.type}: {message.text}")
