"""The directives that generate the schemas of files, and the table of rules, from the code."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from profiler.core.plugins import discover


class JsonSchema(SphinxDirective):
    """`{json-schema} module:Model`: the JSON Schema of a pydantic model, as indented JSON."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].partition(":")
        model: Any = getattr(importlib.import_module(module), name)
        schema = model.model_json_schema(by_alias=True)
        text = json.dumps(schema, indent=2, ensure_ascii=False)
        return [nodes.literal_block(text, text, language="json")]


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
    app.add_directive("rules", Rules)
    return {"parallel_read_safe": True}
