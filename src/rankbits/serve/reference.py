"""/docs: the OpenAPI description as a plain page, which needs no script and no network."""

from __future__ import annotations

import json
from html import escape
from typing import Any


def page(openapi: dict[str, Any]) -> str:
    """One section for each route.

    >>> "GET /health" in page({"info": {"title": "t", "version": "1"}, "paths": {
    ...     "/health": {"get": {"description": "Up?"}}}})
    True
    """
    info = openapi["info"]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(info['title'])} reference</title>",
        '<link rel="stylesheet" href="/static/style.css"></head><body><main>',
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info.get('description', ''))} ",
        '<a href="/">The page</a>, <a href="/openapi.json">openapi.json</a></p>',
    ]
    for path, methods in openapi["paths"].items():
        for method, what in methods.items():
            parts.append(f"<section><h2>{escape(method.upper())} {escape(path)}</h2>")
            parts.append(f"<p>{escape(what.get('description', ''))}</p>")
            parts += _parameters(what.get("parameters", []))
            for kind, content in what.get("requestBody", {}).get("content", {}).items():
                shape = json.dumps(content["schema"], indent=2)
                parts.append(f"<h3>Body: {escape(kind)}</h3><pre>{escape(shape)}</pre>")
            parts.append("</section>")
    return "".join([*parts, "</main></body></html>"])


def _parameters(listed: list[dict[str, Any]]) -> list[str]:
    if not listed:
        return []
    rows = [
        f"<tr><th scope='row'>{escape(p['name'])}</th><td>{escape(p['in'])}</td>"
        f"<td><code>{escape(json.dumps(p.get('schema', {})))}</code></td></tr>"
        for p in listed
    ]
    return ["<table>", *rows, "</table>"]
