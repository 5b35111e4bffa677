"""The routes: FastAPI over a ``Service``, inside a ``Guard``."""

# annotations are values here, not texts: FastAPI reads them, and its names are known only inside
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from rankbits import _check
from rankbits._version import VERSION
from rankbits.serve import schemas
from rankbits.serve.guard import ADVICE, Guard, failure
from rankbits.serve.limits import Rejected, brief, reject
from rankbits.serve.logs import Log
from rankbits.serve.meters import Meters
from rankbits.serve.reference import page
from rankbits.serve.service import PAGE, Service
from rankbits.serve.wire import dumps

STATIC = Path(__file__).parent / "static"
FLUSH = 0.2  # seconds that a line of the log may wait
SENTENCES = {404: "There is nothing at this address.", 405: "This address takes another method."}


def create_app(
    service: Service, *, log: Log | None = None, hosts: frozenset[str] | None = None
) -> Guard:
    """The ASGI application of a service; it closes the service at its shutdown."""
    try:
        from fastapi import FastAPI, Query, Request
        from fastapi.exceptions import RequestValidationError
        from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
        from fastapi.staticfiles import StaticFiles
        from starlette.exceptions import HTTPException
    except ImportError:
        _check.refuse("Serving needs FastAPI and uvicorn: pip install 'rankbits[serve]'.")

    log, meters, limits = log or Log(), Meters(), service.limits
    service.batcher.sizes = meters.sizes

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async def flush() -> None:
            while True:
                await asyncio.sleep(FLUSH)
                log.flush()

        flushing = asyncio.create_task(flush())
        yield
        flushing.cancel()
        with suppress(asyncio.CancelledError):
            await flushing
        await asyncio.get_running_loop().run_in_executor(None, service.close)
        log.event("stopped")

    app = FastAPI(
        title="rankbits",
        version=VERSION,
        description="Search of binary codes: exact, by Hamming distance, ties shown as ties.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        default_response_class=Response,
        redirect_slashes=False,
    )
    app.router.redirect_slashes = False

    def reply(value: Any, status: int = 200) -> Response:
        return Response(dumps(value), status, media_type="application/json")

    def asked(name: str) -> dict[str, Any]:
        return {"responses": schemas.REPLIES, "openapi_extra": schemas.BODIES.get(name)}

    @app.exception_handler(Rejected)
    async def rejected(request: Request, error: Rejected) -> Response:
        made = reply({"error": str(error)}, error.status)
        made.headers.update(ADVICE.get(error.status, {}))
        return made

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        name, said = first["loc"][-1], str(first["msg"])
        sentence = f"{name}: {said[:1].lower()}{said[1:]}; got {brief(first.get('input'))}."
        return reply({"error": sentence}, 422)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        sentence = SENTENCES.get(error.status_code, "This request cannot be answered.")
        made = reply({"error": sentence}, error.status_code)
        made.headers.update(error.headers or {})
        return made

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        status, sentence = failure(error)
        return reply({"error": sentence}, status)

    @app.get("/health", **asked("health"))
    async def health() -> Response:
        """Whether the service is up."""
        return reply({"status": "ok"})

    @app.get("/stats", **asked("stats"))
    async def stats() -> Response:
        """What is served, by which limits, and how much was asked."""
        return reply(service.stats())

    @app.post("/search", **asked("search"))
    async def search(request: Request) -> Response:
        """The nearest items of a stored id, a code, a vector or a text, in bands of equal
        Hamming distance."""
        return Response(await service.search(await request.body()), media_type="application/json")

    @app.post("/search/image", **asked("image"))
    async def search_image(
        request: Request,
        k: int = Query(20, ge=1, le=limits.k),
        histogram: bool = True,
    ) -> Response:
        """The nearest items of an image, which is the body."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not (kind.startswith("image/") or kind == "application/octet-stream"):
            reject(415, f"The body must be an image, with its Content-Type; got {brief(kind)}.")
        raw = await request.body()
        made = await service.search_image(raw, k, histogram)
        return Response(made, media_type="application/json")

    @app.get("/items", **asked("items"))
    async def items(
        offset: int = Query(0, ge=0, le=1 << 40),
        limit: int = Query(50, ge=1, le=PAGE),
        label: str | None = None,
    ) -> Response:
        """Items in order, all or those of a label."""
        return reply(service.listed(offset, limit, label))

    @app.get("/items/{id:path}/image", **asked("picture"))
    async def picture(id: str) -> Response:
        """The thumbnail of an item."""
        body, kind = await service.picture(id)
        return Response(body, media_type=kind, headers={"cache-control": "private, max-age=3600"})

    @app.get("/items/{id:path}", **asked("item"))
    async def item(id: str) -> Response:
        """One item."""
        return reply(service.item(id)[0])

    @app.post("/add", **asked("add"))
    async def add(request: Request) -> Response:
        """Remember codes or vectors under ids; on the disk before the reply."""
        service.authorise(request.headers.get("authorization"))
        return reply(await service.add(await request.body()))

    @app.post("/remove", **asked("remove"))
    async def remove(request: Request) -> Response:
        """Forget ids; on the disk before the reply."""
        service.authorise(request.headers.get("authorization"))
        return reply(await service.remove(await request.body()))

    @app.get("/compare", **asked("compare"))
    async def compare(id: str, k: int = Query(20, ge=1, le=limits.k)) -> Response:
        """Several codes of the same items for one query, each with its tie-aware AP."""
        return reply(await service.compare(id, k))

    @app.get("/report", **asked("report"))
    async def report() -> Response:
        """How the codes were judged."""
        if service.report is None:
            reject(404, "This service has no report: it was started without --report.")
        return reply(service.report)

    @app.get("/metrics", **asked("metrics"))
    async def metrics() -> Response:
        """Counts and latencies, as Prometheus reads them."""
        gauges = {
            "rankbits_index_codes": ("Codes in the index.", float(service.index.count())),
            "rankbits_index_bits": ("Bits of a code.", float(service.index.bits)),
            "rankbits_requests_inside": ("Requests at work now.", float(guard.inside)),
        }
        return PlainTextResponse(meters.text(gauges), media_type="text/plain; version=0.0.4")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page(app.openapi()))

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    app.mount("/static", StaticFiles(directory=STATIC, check_dir=False), "static")
    guard = Guard(app, limits, log, meters, hosts)
    return guard
