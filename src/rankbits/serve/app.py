"""The routes of a service, and the checks that every request passes first."""

from __future__ import annotations

import hmac
import os
import re
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl, unquote

import httptools

from rankbits.serve import reference
from rankbits.serve.answers import Unavailable
from rankbits.serve.asks import DEFAULT_K, parse_floats, parse_number
from rankbits.serve.limits import Rejected, reject, shorten
from rankbits.serve.logs import Log
from rankbits.serve.meters import Meters
from rankbits.serve.service import PAGE, Service
from rankbits.serve.wire import Reply, Request, dumps, make_refusal

STATIC = Path(__file__).parent / "static"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
METHODS = frozenset(("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"))
FAILED = "The service failed; its log says more under the id of this request."
DOWN = "The index cannot do that at present; the log says more under the id of this request."


@dataclass(frozen=True)
class Route:
    """A method, a path, and ``answer(app, request)``, which returns a reply or its JSON. ``query``
    has the default, the least and the most (None: the service's limit of k) of each whole number of
    the query string, ``words`` are its other names. ``body``: the schema of a JSON body. ``image``:
    the body is an image. ``token``: the request must show the token."""

    method: str
    path: str
    answer: Callable[[App, Request], Awaitable[Reply | bytes | dict]]
    about: str
    query: Mapping[str, tuple[int, int, int | None]] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    body: dict[str, Any] | None = None
    image: bool = False
    token: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        parts = re.split(r"\{(\w+)\}", self.path)
        groups = [f"(?P<{p}>.+)" if i % 2 else re.escape(p) for i, p in enumerate(parts)]
        return re.compile("".join(groups), re.DOTALL)


class App:
    """Checks and answers the requests of a service. ``hosts``: the names that a Host header may
    have (None: any), so that a foreign page that points its own name at this machine reads
    nothing."""

    def __init__(
        self, service: Service, *, log: Log | None = None, hosts: frozenset[str] | None = None
    ) -> None:
        self.service, self.log, self.hosts = service, log or Log(), hosts
        self.meters, self.inside = Meters(), 0
        service.batcher.sizes = self.meters.batches.observe
        self.openapi = reference.describe(ROUTES, service.limits)
        self._patterns = [(route, route.pattern) for route in ROUTES]
        self._frequent = {r.path.encode(): r for r in ROUTES if r.method == "POST"}
        prefix = os.urandom(4).hex()
        self._ids = (f"{prefix}{n:08x}" for n in count())

    def make_id(self) -> str:
        """Make the id of the next request."""
        return next(self._ids)

    def admit(self, request: Request) -> Rejected | None:
        """Find the route of a request and check its head -> the refusal, or None."""
        try:
            self._check_head(request)
        except Rejected as refusal:
            return refusal
        return None

    def _check_head(self, request: Request) -> None:
        host = request.header(b"host").lower()
        if self.hosts is not None and host:
            bare = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
            if bare not in self.hosts:
                reject(421, "This service answers only under the name that it listens on.")
        route = request.route = self._find_route(request)
        if route.token:
            self._check_token(request.header(b"authorization"))
        length = request.header(b"content-length") or "0"
        if len(length) > 18 or int(length) > self.service.limits.body_bytes:
            raise self.too_large
        if route.image:
            kind = request.header(b"content-type").partition(";")[0].strip().lower()
            if not (kind.startswith("image/") or kind == "application/octet-stream"):
                reject(
                    415, f"The body must be an image, with its Content-Type; got {shorten(kind)}."
                )

    def _check_token(self, header: str) -> None:
        """Refuse a writer without the token, in a time that says nothing about the token."""
        if self.service.token is None:
            reject(403, "This service is read-only: it was started without a token.")
        kind, _, token = header.partition(" ")
        same = hmac.compare_digest(token.strip().encode(), self.service.token.encode())
        if kind.lower() != "bearer" or not same:
            reject(
                401, "Writing needs the header 'Authorization: Bearer TOKEN' with the right token."
            )

    @property
    def too_large(self) -> Rejected:
        """The refusal of a body past the limit."""
        return Rejected(413, f"The body may have at most {self.service.limits.body_bytes:,} bytes.")

    def _find_route(self, request: Request) -> Route:
        if request.method == "POST" and request.url in self._frequent:
            return self._frequent[request.url]
        try:
            url = httptools.parse_url(request.url)
            path = unquote((url.path or b"/").decode(), errors="strict")
            query = parse_qsl((url.query or b"").decode(), keep_blank_values=True, errors="strict")
        except (httptools.HttpParserInvalidURLError, ValueError):
            reject(400, "The address of this request cannot be read.")
        method = "GET" if request.method == "HEAD" else request.method
        matches = [(r, m) for r, p in self._patterns if (m := p.fullmatch(path)) is not None]
        if not matches:
            reject(404, "There is nothing at this address.")
        for route, match in matches:
            if route.method == method:
                request.values.update({**dict(query), **match.groupdict()})
                return route
        reject(405, "This address takes another method.")

    async def respond(self, request: Request) -> Reply:
        """Answer an admitted request; a failure becomes a reply too, and a line of the log."""
        assert request.route is not None
        self.inside += 1
        try:
            if self.inside > self.service.limits.waiting:
                reject(503, "Too many requests are waiting: try again in a moment.")
            answer = await request.route.answer(self, request)
            if isinstance(answer, Reply):
                return answer
            return Reply(answer if isinstance(answer, bytes) else dumps(answer))
        except Rejected as refusal:
            return make_refusal(refusal)
        except Exception as error:
            lines = traceback.format_exception(type(error), error, error.__traceback__)
            self.log.write_event("failure", id=request.id, traceback="".join(lines))
            down = isinstance(error, Unavailable)
            return make_refusal(Rejected(503, DOWN) if down else Rejected(500, FAILED))
        finally:
            self.inside -= 1

    def note(self, request: Request, status: int) -> None:
        """Log and count a request that is over."""
        seconds = perf_counter() - request.began
        method = request.method if request.method in METHODS else "-"
        route = request.route.path if request.route is not None else "-"
        self.log.write_request(method, route, status, seconds, request.id)
        self.meters.count_request(method, route, status, seconds)

    def read_number(self, request: Request, name: str) -> int:
        """Read a whole number of the query string, within the limits of its route."""
        assert request.route is not None
        default, least, most = request.route.query[name]
        text = request.values.get(name)
        if text is None:
            return default
        return parse_number(name, text, least, self.service.limits.k if most is None else most)


async def check_health(app: App, request: Request) -> dict[str, str]:
    await app.service.check_index()
    return {"status": "ok"}


async def check_readiness(app: App, request: Request) -> dict[str, str]:
    await app.service.check_index()
    await app.service.check_writing()
    return {"status": "ok"}


async def search_image(app: App, request: Request) -> bytes:
    histogram = request.values.get("histogram", "true").lower()
    if histogram not in ("true", "false"):
        reject(422, f"histogram must be true or false; got {shorten(histogram)}.")
    k = app.read_number(request, "k")
    floats = parse_floats(request.values.get("ask"))
    return await app.service.search_image(request.body, k, histogram == "true", floats)


async def list_items(app: App, request: Request) -> dict[str, Any]:
    offset, limit = app.read_number(request, "offset"), app.read_number(request, "limit")
    return app.service.list_items(offset, limit, request.values.get("label"))


async def show_item(app: App, request: Request) -> dict[str, Any]:
    return app.service.item(request.values["id"])[0]


async def show_picture(app: App, request: Request) -> Reply:
    body, kind = await app.service.picture(request.values["id"])
    return Reply(body, kind=kind, headers="cache-control: private, max-age=3600\r\n")


async def compare(app: App, request: Request) -> dict[str, Any]:
    name, text = request.values.get("id"), request.values.get("text")
    if (name is None) == (text is None):
        reject(422, "Give either an id or a text to compare by.")
    return await app.service.compare(name or "", app.read_number(request, "k"), text)


async def show_report(app: App, request: Request) -> dict[str, Any]:
    if app.service.report is None:
        reject(404, "This service has no report: it was started without --report.")
    return app.service.report


async def show_metrics(app: App, request: Request) -> Reply:
    try:
        app.meters.codes.set(await app.service.count())
    except Unavailable:
        app.meters.codes.set(float("nan"))
    app.meters.bits.set(app.service.index.bits)
    app.meters.inside.set(app.inside)
    return Reply(app.meters.render(), kind="text/plain; version=0.0.4; charset=utf-8")


async def show_openapi(app: App, request: Request) -> dict[str, Any]:
    return app.openapi


async def show_docs(app: App, request: Request) -> Reply:
    return Reply(reference.render_page(app.openapi).encode(), kind="text/html; charset=utf-8")


async def show_page(app: App, request: Request) -> Reply:
    name = request.values.get("name", "index.html")
    file = STATIC / name
    if "/" in name or "\\" in name or file.suffix not in KINDS or not file.is_file():
        reject(404, "There is nothing at this address.")
    kind = f"{KINDS[file.suffix]}; charset=utf-8"
    return Reply(file.read_bytes(), kind=kind, headers="cache-control: no-cache\r\n")


SEARCH_K = {"k": (DEFAULT_K, 1, None)}
PLACES = {"offset": (0, 0, 1 << 40), "limit": (50, 1, PAGE)}
ROUTES = (
    Route("POST", "/search", lambda app, request: app.service.search(request.body),
          "Find the items nearest to a stored id, a code, a vector or a text, in bands of equal "
          "distance.", body=reference.SEARCH),
    Route("POST", "/search/image", search_image,
          "Find the items nearest to an image, which is the body.",
          SEARCH_K, ("histogram", "ask"), image=True),
    Route("GET", "/items", list_items, "List items in order: all, or those of one label.", PLACES,
          ("label",)),
    Route("GET", "/items/{id}/image", show_picture, "Show the thumbnail of an item."),
    Route("GET", "/items/{id}", show_item, "Show one item."),
    Route("POST", "/add", lambda app, request: app.service.add(request.body),
          "Add codes, vectors or texts under ids. They are on the disk when the reply is sent.",
          body=reference.ADD, token=True),
    Route("POST", "/remove", lambda app, request: app.service.remove(request.body),
          "Remove ids. They are gone from the disk when the reply is sent.",
          body=reference.REMOVE, token=True),
    Route("GET", "/compare", compare,
          "Compare several codes of the same items for one query, a stored id or a text, each with "
          "its tie-aware AP.", SEARCH_K, ("id", "text")),
    Route("GET", "/report", show_report, "Show how well the codes rank."),
    Route("GET", "/stats", lambda app, request: app.service.stats(),
          "Show what is served, its limits, and how many searches there were."),
    Route("GET", "/health", check_health, "Check that the index answers."),
    Route("GET", "/ready", check_readiness,
          "Check that the index answers and, if the service has a token, that it can write."),
    Route("GET", "/metrics", show_metrics, "Show counts and latencies in Prometheus's format."),
    Route("GET", "/openapi.json", show_openapi, "Show this description."),
    Route("GET", "/docs", show_docs, "Show this description as a page."),
    Route("GET", "/", show_page, "Show the page."),
    Route("GET", "/static/{name}", show_page, "Show a file of the page."),
)  # fmt: skip
