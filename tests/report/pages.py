"""Reads an HTML report the way a browser's parser does, as far as tests need it."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "wbr", "img", "input", "hr", "path", "use"}


class Page(HTMLParser):
    """The content of a page; `unclosed` names tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []  # tag, attribute, value
        self.text = ""  # outside script and style
        self.unclosed: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.unclosed += [f"<{tag}> is never closed" for tag in self._open]

    def values(self, attribute: str) -> list[str]:
        return [value for _, name, value in self.attributes if name == attribute]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()
        else:
            self.unclosed.append(f"</{tag}> while {self._open[-3:]} are open")

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._open):
            self.text += data


def read(html: str) -> Page:
    """Parse a page."""
    return Page(html)
