"""Takes pictures of a report, in slices: python -m tests.browser.shots compare.html OUT [--width 1440 420] [--full]."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.browser.browsing import browser, opened

SLICE = {1440: 1100, 420: 1600}
"""Height of a slice in CSS pixels, by width: about what an eye takes in at once."""


def shots(file: Path, out: Path, widths: list[int], schemes: list[str]) -> list[Path]:
    """PNG files named WIDTH-SCHEME-NUMBER.png, from the top of the page to its end."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    with browser() as started:
        for width in widths:
            for scheme in schemes:
                height = SLICE.get(width, 1100)
                with opened(started, file, width=width, height=height, scheme=scheme) as watched:
                    total = watched.page.evaluate("document.documentElement.scrollHeight")
                    for number, top in enumerate(range(0, total, height)):
                        watched.page.evaluate(f"window.scrollTo(0, {top})")
                        path = out / f"{width}-{scheme}-{number:02d}.png"
                        watched.page.screenshot(path=path)
                        written.append(path)
                    print(f"{width} {scheme}: {total} px high, overflow {watched.overflow()} px", *watched.complaints)
    return written


def main() -> None:
    """Parse and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, nargs="+", default=[1440, 420])
    parser.add_argument("--scheme", nargs="+", choices=("light", "dark"), default=["light", "dark"])
    args = parser.parse_args()
    shots(args.file, args.out, args.width, args.scheme)


if __name__ == "__main__":
    main()
