"""The HTTP service and its page. FastAPI and uvicorn are loaded when something is served."""

from rankbits.serve.app import create_app
from rankbits.serve.compare import Comparison, compared, read_comparison
from rankbits.serve.encoding import Encoder, read_encoder
from rankbits.serve.items import Items, read_items
from rankbits.serve.limits import Limits, Rejected
from rankbits.serve.running import serve
from rankbits.serve.service import Service

__all__ = [
    "Comparison",
    "Encoder",
    "Items",
    "Limits",
    "Rejected",
    "Service",
    "compared",
    "create_app",
    "read_comparison",
    "read_encoder",
    "read_items",
    "serve",
]
