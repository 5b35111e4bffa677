"""The HTTP service and its page. The server's packages are loaded when something is served."""

from rankbits.serve.compare import (
    SideBySide,
    compare_with_floats,
    make_comparison,
    read_comparison,
)
from rankbits.serve.items import Items, describe_items, read_items
from rankbits.serve.limits import Limits, Rejected
from rankbits.serve.queries import QueryReader
from rankbits.serve.running import create_app, serve
from rankbits.serve.service import Service

__all__ = [
    "Items",
    "Limits",
    "QueryReader",
    "Rejected",
    "Service",
    "SideBySide",
    "compare_with_floats",
    "create_app",
    "describe_items",
    "make_comparison",
    "read_comparison",
    "read_items",
    "serve",
]
