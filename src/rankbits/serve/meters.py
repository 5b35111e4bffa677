"""The counts and latencies of a service, for Prometheus."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Meters:
    """Counts requests by route and status, their seconds, the sizes of batches, and the codes."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "rankbits_requests", "Requests answered.", ("method", "route", "status"),
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "rankbits_request_seconds", "Seconds from the head of a request to its end.",
            ("route",), buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.batches = Histogram(
            "rankbits_batch_size", "Queries answered by one call of the kernels.",
            buckets=SIZES, registry=registry,
        )  # fmt: skip
        self.codes = Gauge("rankbits_index_codes", "Codes in the index.", registry=registry)
        self.bits = Gauge("rankbits_index_bits", "Bits of a code.", registry=registry)
        self.inside = Gauge("rankbits_requests_inside", "Requests at work now.", registry=registry)
        self._by_request: dict[tuple[str, str, int], tuple[Any, Any]] = {}

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        key = (method, route, status)
        meters = self._by_request.get(key)
        if meters is None:
            counter = self._requests.labels(method, route, str(status))
            meters = self._by_request[key] = (counter, self._seconds.labels(route))
        meters[0].inc()
        meters[1].observe(seconds)

    def render(self) -> bytes:
        """Write everything in Prometheus's text format."""
        return generate_latest(self._registry)
