"""The directive that generates the schemas of files from the code."""

from __future__ import annotations

import importlib
import json
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class JsonSchema(SphinxDirective):
    """`{json-schema} module:Model`: the JSON Schema of a pydantic model, as indented JSON."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].partition(":")
        model: Any = getattr(importlib.import_module(module), name)
        schema = model.model_json_schema(by_alias=True)
        text = json.dumps(schema, indent=2, ensure_ascii=False)
        return [nodes.literal_block(text, text, language="json")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("json-schema", JsonSchema)
    return {"parallel_read_safe": True}
