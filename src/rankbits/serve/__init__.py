"""The HTTP service and its page. The server's packages are loaded when something is served."""

from rankbits.serve.compare import Comparison, compared, read_comparison
from rankbits.serve.items import Items, items_of, read_items
from rankbits.serve.limits import Limits, Rejected
from rankbits.serve.questions import Questions
from rankbits.serve.running import create_app, serve
from rankbits.serve.service import Service

__all__ = [
    "Comparison",
    "Items",
    "Limits",
    "Questions",
    "Rejected",
    "Service",
    "compared",
    "create_app",
    "items_of",
    "read_comparison",
    "read_items",
    "serve",
]
