"""What the service counts about itself, as the text that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histogram:
    """Counts by upper bound, with their sum.

    >>> seen = Histogram((1, 2))
    >>> seen.add(1.5); seen.add(7)
    >>> print("\\n".join(seen.lines("x")))
    x_bucket{le="1"} 0
    x_bucket{le="2"} 1
    x_bucket{le="+Inf"} 2
    x_sum 8.5
    x_count 2
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.total = bounds, 0.0
        self.counts = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, tags: str = "") -> list[str]:
        comma, out, below = f"{tags}," if tags else "", [], 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            below += count
            out.append(f'{name}_bucket{{{comma}le="{bound}"}} {below}')
        braces = f"{{{tags}}}" if tags else ""
        return [*out, f"{name}_sum{braces} {self.total:.9g}", f"{name}_count{braces} {below}"]


class Meters:
    """Requests by route and status, their seconds, and the sizes of batches."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.seconds: dict[str, Histogram] = {}
        self.batches = Histogram(SIZES)
        self.sizes = self.batches.add

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        self.requests[method, route, status] += 1
        held = self.seconds.get(route)
        if held is None:
            held = self.seconds[route] = Histogram(SECONDS)
        held.add(seconds)

    def text(self, gauges: dict[str, tuple[str, float]]) -> str:
        """All of it; ``gauges``: name -> (what it is, value)."""
        lines = ["# HELP rankbits_requests_total Requests answered.",
                 "# TYPE rankbits_requests_total counter"]  # fmt: skip
        for (method, route, status), count in sorted(self.requests.items()):
            tags = f'method="{method}",route="{route}",status="{status}"'
            lines.append(f"rankbits_requests_total{{{tags}}} {count}")
        lines += ["# HELP rankbits_request_seconds Seconds from the head of a request to its end.",
                  "# TYPE rankbits_request_seconds histogram"]  # fmt: skip
        for route, seen in sorted(self.seconds.items()):
            lines += seen.lines("rankbits_request_seconds", f'route="{route}"')
        lines += ["# HELP rankbits_batch_size Queries answered by one call of the kernels.",
                  "# TYPE rankbits_batch_size histogram",
                  *self.batches.lines("rankbits_batch_size")]  # fmt: skip
        for name, (text, value) in gauges.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {value:.9g}"]
        return "\n".join(lines) + "\n"
