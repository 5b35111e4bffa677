"""Describe the routes as OpenAPI (/openapi.json) and as a plain page (/docs), which needs no script
and no network. The schemas here only describe; ``asks`` checks the bodies."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from rankbits._version import VERSION
from rankbits.serve.limits import Limits

if TYPE_CHECKING:
    from rankbits.serve.app import Route

ABOUT = "Search of binary codes: exact, by Hamming distance, ties shown as ties."
TEXT: dict[str, Any] = {"type": "string"}
ID: dict[str, Any] = {"anyOf": [TEXT, {"type": "integer"}]}
IDS: dict[str, Any] = {"type": "array", "items": ID}
HEX: dict[str, Any] = {**TEXT, "description": "packed bytes of a code in hex"}
VECTOR: dict[str, Any] = {"type": "array", "items": {"type": "number"}, "minItems": 1}
FINGERPRINT: dict[str, Any] = {
    **TEXT,
    "pattern": "^[0-9a-f]{16}$",
    "description": "of the encoder that made the codes; codes of another encoder are refused",
}
ASK: dict[str, Any] = {**TEXT, "enum": ["bits", "floats"]}
IMAGE: dict[str, Any] = {**TEXT, "format": "binary"}


def _describe_object(
    properties: dict[str, Any], required: list[str], *one_of: str
) -> dict[str, Any]:
    choice = {"oneOf": [{"required": [name]} for name in one_of]} if one_of else {}
    shape = {"type": "object", "properties": properties, "required": required}
    return {**shape, "additionalProperties": False, **choice}


SEARCH = _describe_object(
    {
        "id": ID,
        "code": HEX,
        "vector": VECTOR,
        "text": TEXT,
        "k": {"type": "integer", "minimum": 1, "default": 20},
        "radius": {"type": "integer", "minimum": 0},
        "among": IDS,
        "histogram": {"type": "boolean", "default": True},
        "ask": ASK,
        "fingerprint": FINGERPRINT,
    },
    [],
    *("id", "code", "vector", "text"),
)
ADD = _describe_object(
    {
        "ids": IDS,
        "codes": {"type": "array", "items": HEX},
        "vectors": {"type": "array", "items": VECTOR},
        "texts": {"type": "array", "items": {**TEXT, "minLength": 1}},
        "fingerprint": FINGERPRINT,
    },
    ["ids"],
    *("codes", "vectors", "texts"),
)
REMOVE = _describe_object({"ids": IDS}, ["ids"])
ERROR = _describe_object({"error": TEXT}, ["error"])
REFUSALS = (400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 422, 431, 503)


def describe(routes: Sequence[Route], limits: Limits) -> dict[str, Any]:
    """Make the OpenAPI document of routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_route(route, limits)
    info = {"title": "rankbits", "version": VERSION, "description": ABOUT}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


def _describe_route(route: Route, limits: Limits) -> dict[str, Any]:
    parameters = [
        _describe_parameter(name, "path", TEXT) for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    for name, (default, least, most) in route.query.items():
        most = limits.k if most is None else most
        number = {"type": "integer", "default": default, "minimum": least, "maximum": most}
        parameters.append(_describe_parameter(name, "query", number))
    for name in route.words:
        kind = {"histogram": {"type": "boolean"}, "ask": ASK}.get(name, TEXT)
        parameters.append(_describe_parameter(name, "query", kind))
    if route.token:
        token = {**TEXT, "description": "Bearer TOKEN"}
        parameters.append(_describe_parameter("Authorization", "header", token))
    content = {"application/json": {"schema": ERROR}}
    refused = {"description": "Refused, in one sentence.", "content": content}
    replies = {"200": {"description": "Answered."}, **{str(s): refused for s in REFUSALS}}
    facts = {"description": route.about, "parameters": parameters, "responses": replies}
    if route.body is not None:
        content = {"application/json": {"schema": route.body}}
        facts["requestBody"] = {"required": True, "content": content}
    elif route.image:
        facts["requestBody"] = {"required": True, "content": {"image/*": {"schema": IMAGE}}}
    return facts


def _describe_parameter(name: str, where: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": where, "required": where != "query", "schema": schema}


def render_page(openapi: dict[str, Any]) -> str:
    """Make the page of /docs: a section for each route.

    >>> "GET /health" in render_page({"info": {"title": "t", "version": "1"}, "paths": {
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
            rows = [
                f"<tr><th scope='row'>{escape(p['name'])}</th><td>{escape(p['in'])}</td>"
                f"<td><code>{escape(json.dumps(p['schema']))}</code></td></tr>"
                for p in what.get("parameters", [])
            ]
            parts += ["<table>", *rows, "</table>"] if rows else []
            for kind, content in what.get("requestBody", {}).get("content", {}).items():
                shape = json.dumps(content["schema"], indent=2)
                parts.append(f"<h3>Body: {escape(kind)}</h3><pre>{escape(shape)}</pre>")
            parts.append("</section>")
    return "".join([*parts, "</main></body></html>"])
