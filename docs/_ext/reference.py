"""The directives that generate the schemas of files, the tables of fields, and the table of rules, from the code."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from fields import entries, objects, summary
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from profiler.core.plugins import discover


class JsonSchema(SphinxDirective):
    """`{json-schema} module:Model`: the JSON Schema of a pydantic model, as indented JSON."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        model = _class(self.arguments[0])
        schema = model.model_json_schema(by_alias=True)
        text = json.dumps(schema, indent=2, ensure_ascii=False)
        return [nodes.literal_block(text, text, language="json")]


class Objects(SphinxDirective):
    """`{objects} module:Class ...`: a section for each object of a JSON document that begins with one of these.

    `known` names classes whose objects have their sections elsewhere on the page.
    """

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {"known": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        known = objects(*map(_class, self.options.get("known", "").split()))
        return [_section(kind) for kind in objects(*map(_class, self.arguments[0].split())) if kind not in known]


def _section(kind: type) -> nodes.section:
    section = nodes.section("", nodes.title(text=kind.__name__), ids=[_anchor(kind)], names=[_anchor(kind)])
    section += nodes.paragraph("", "", *_inline(summary(kind)))
    rows = entries(kind)
    if not any(entry.type or entry.meaning for entry in rows):
        section += nodes.paragraph("", "", *_inline(f"One of `{'`, `'.join(entry.name for entry in rows)}`."))
        return section
    head = ["key", "type", "meaning"] if any(entry.type for entry in rows) else ["value", "meaning"]
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    group += nodes.thead("", _row([nodes.Text(word)] for word in head))
    body = nodes.tbody()
    for entry in rows:
        kinds = [[node for part in entry.type for node in _words(part)]] if entry.type else []
        body += _row([[nodes.literal(text=entry.name)], *kinds, _inline(entry.meaning)])
    group += body
    section += nodes.table("", group)
    return section


def _row(cells: Iterable[list[nodes.Node]]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *cell)) for cell in cells))


def _words(part: str | type) -> list[nodes.Node]:
    """A part of a type; a class links to its section."""
    if isinstance(part, str):
        return _inline(part)
    return [nodes.reference("", "", nodes.Text(part.__name__), refid=_anchor(part), internal=True)]


def _inline(text: str) -> list[nodes.Node]:
    """Text with what stands in backticks as code."""
    parts = enumerate(text.split("`"))
    return [nodes.literal(text=part) if number % 2 else nodes.Text(part) for number, part in parts]


def _anchor(kind: type) -> str:
    return f"{kind.__module__}-{kind.__name__}".replace(".", "-").lower()


def _class(name: str) -> Any:
    module, _, name = name.partition(":")
    return getattr(importlib.import_module(module), name)


class Rules(SphinxDirective):
    """`{rules}`: every rule with its cause and what to do about it."""

    def run(self) -> list[nodes.Node]:
        entries = nodes.definition_list()
        for rule in discover("profiler.diagnose.rules"):
            term = nodes.term("", "", nodes.literal(text=rule.name))
            texts = [nodes.paragraph(text=f"{_plain(rule.title)}. {rule.fix}")]
            if rule.code:
                texts.append(nodes.paragraph("", "", nodes.literal(text=_plain(rule.code))))
            entries += nodes.definition_list_item("", term, nodes.definition("", *texts))
        return [entries]


def _plain(template: str) -> str:
    """A template with N in place of each of its values."""
    return re.sub(r"\{\w+(:\w+)?\}", "N", template)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("json-schema", JsonSchema)
    app.add_directive("objects", Objects)
    app.add_directive("rules", Rules)
    return {"parallel_read_safe": True}
