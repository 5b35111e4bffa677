"""The OpenAPI description of bodies and replies. It is written by hand, because ``asks`` reads the
bodies and words its own refusals."""

from __future__ import annotations

from typing import Any

ID: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
IDS: dict[str, Any] = {"type": "array", "items": ID}
HEX: dict[str, Any] = {"type": "string", "description": "packed bytes of a code in hex"}
FINGERPRINT: dict[str, Any] = {
    "type": "string",
    "pattern": "^[0-9a-f]{16}$",
    "description": "the encoder that made the codes; another one than the index's is refused",
}
VECTOR: dict[str, Any] = {"type": "array", "items": {"type": "number"}, "minItems": 1}
ERROR: dict[str, Any] = {
    "description": "Refused, in one sentence.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {"error": {"type": "string"}},
                "required": ["error"],
            }
        }
    },
}
REPLIES: dict[int | str, dict[str, Any]] = dict.fromkeys(
    (400, 401, 403, 404, 408, 409, 413, 415, 422, 503), ERROR
)


def _body(properties: dict[str, Any], required: list[str], **more: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        **more,
    }
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


TOKEN: dict[str, Any] = {
    "parameters": [
        {
            "name": "Authorization",
            "in": "header",
            "required": True,
            "schema": {"type": "string"},
            "description": "Bearer TOKEN",
        }
    ]
}

BODIES: dict[str, dict[str, Any]] = {
    "search": _body(
        {
            "id": ID,
            "code": HEX,
            "vector": VECTOR,
            "text": {"type": "string"},
            "k": {"type": "integer", "minimum": 1, "default": 20},
            "radius": {"type": "integer", "minimum": 0},
            "among": IDS,
            "histogram": {"type": "boolean", "default": True},
            "ask": {"type": "string", "enum": ["bits", "floats"]},
            "fingerprint": FINGERPRINT,
        },
        [],
        oneOf=[{"required": [kind]} for kind in ("id", "code", "vector", "text")],
    ),
    "image": {
        "requestBody": {
            "required": True,
            "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
    "add": {
        **_body(
            {
                "ids": IDS,
                "codes": {"type": "array", "items": HEX},
                "vectors": {"type": "array", "items": VECTOR},
                "fingerprint": FINGERPRINT,
            },
            ["ids"],
            oneOf=[{"required": ["codes"]}, {"required": ["vectors"]}],
        ),
        **TOKEN,
    },
    "remove": {**_body({"ids": IDS}, ["ids"]), **TOKEN},
}
