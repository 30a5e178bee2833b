"""Reads an HTML report the way a browser's parser does, as far as tests need it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr", "path", "use"}


@dataclass
class Page:
    """What a page holds."""

    tags: list[str] = field(default_factory=list)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    """(tag, attribute, value)"""
    text: str = ""
    """All text outside script and style."""
    unclosed: list[str] = field(default_factory=list)

    def values(self, attribute: str) -> list[str]:
        return [value for _, name, value in self.attributes if name == attribute]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.tags.append(tag)
        self.page.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.tags.append(tag)
        self.page.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.page.unclosed.append(f"</{tag}> while {self.open[-3:]} are open")

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.page.text += data


def read(html: str) -> Page:
    """Parse a page; `unclosed` names tags that do not match."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    reader.page.unclosed += [f"<{tag}> is never closed" for tag in reader.open]
    return reader.page
