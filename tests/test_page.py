"""The page in a real browser: what it draws is what the API says and what the codes are.

Needs Chromium (Debian: ``apt-get install chromium``; or the path of one in RANKBITS_CHROMIUM) and
``playwright`` from PyPI, which drives it. The accessibility test needs axe-core (``npm install
--prefix build axe-core``, or the path of its axe.min.js in RANKBITS_AXE). RANKBITS_PICTURES=1
writes the pictures of docs/page.md anew.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest

import rankbits as rb
from rankbits.data.digits import digits
from rankbits.kernels import words

ROOT = Path(__file__).parent.parent
STATIC = ROOT / "src" / "rankbits" / "serve" / "static"
PICTURES = ROOT / "docs" / "pictures"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("RANKBITS_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
AXE = Path(
    os.environ.get("RANKBITS_AXE", ROOT / "build" / "node_modules" / "axe-core" / "axe.min.js")
)
BITS = 32
PATIENCE = 120_000  # milliseconds until a page that does not come is a failure
VIEWS = {
    "start": "#/search",
    "search": "#/search?id=90",
    "compare": "#/compare?id=90",
    "quality": "#/quality",
}
SHOWN = {"start": ".welcome", "search": ".band", "compare": ".method", "quality": ".figures"}


class World:
    """A service of digits in this process, and what its answers must be."""

    def __init__(self) -> None:
        images, labels = digits()
        self.images = (255 - images.astype(np.int64) * 255 // 16).astype(np.uint8)
        self.inputs = images.reshape(len(images), -1).astype(np.float32)
        self.order = np.random.default_rng(0).permutation(len(images))
        self.database, queries = self.order[300:], self.order[:300]
        self.labels = labels[self.database]
        self.quantizer = rb.Projection(BITS).fit(self.inputs[self.database])
        self.codes = self.quantizer.encode(self.inputs[self.database])
        asked = self.quantizer.encode(self.inputs[queries])
        self.report = rb.evaluate(asked, self.codes, labels[queries], self.labels, k=(10, 100))

    def encode_image(self, file) -> rb.Codes:
        from PIL import Image

        pixels = np.asarray(Image.open(file).convert("L").resize((8, 8)), np.int64)
        return self.quantizer.encode(((255 - pixels) * 16 / 255).reshape(1, -1).astype(np.float32))

    def png(self, row: int) -> bytes:
        from PIL import Image

        out = io.BytesIO()
        Image.fromarray(self.images[row]).save(out, "PNG")
        return out.getvalue()

    def make_comparison(self):
        """The codes to compare; fitted in full for the pictures only, which takes many seconds."""
        from rankbits.indexes.ids import Column
        from rankbits.serve import SideBySide, make_comparison
        from rankbits.serve.compare import Method

        inputs = self.inputs[self.database]
        if os.environ.get("RANKBITS_PICTURES"):
            return make_comparison(inputs, self.labels, bits=BITS)
        unit = inputs / np.linalg.norm(inputs, axis=1, keepdims=True)
        rotated = rb.pack(inputs @ np.random.default_rng(1).normal(size=(64, BITS)))
        codes = {"sign": self.codes, "itq": rotated, "h2q": rotated, "supervised": self.codes}
        methods = [Method(n, words(c), c.packed.shape[1]) for n, c in codes.items()]
        floats = Method("float", unit, unit.nbytes // len(unit))
        return SideBySide(Column(np.arange(len(unit))), (floats, *methods), self.labels)

    def distances(self, code: rb.Codes) -> np.ndarray:
        return np.asarray(rb.hamming(code, self.codes))[0].astype(int)

    def ask(self, path: str, body: object = None) -> dict:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = "image/png" if isinstance(body, bytes) else "application/json"
        with urlopen(Request(self.url + path, raw, {"Content-Type": kind})) as reply:
            return json.loads(reply.read())


@contextmanager
def running(service):
    """The address of a service that runs in a thread of this process."""
    from serving import listening

    with listening(service) as (port, _, _):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def world():
    for name in ("httptools", "prometheus_client"):
        pytest.importorskip(name, reason="the page is served by rankbits[serve]")
    pytest.importorskip("PIL", reason="pictures need rankbits[images]")
    from rankbits.serve import Items, QueryReader, Service

    world = World()
    rows, labels = world.database, world.labels
    service = Service(
        rb.HammingIndex(BITS).add(world.codes),
        encoder=QueryReader(vector=world.quantizer.encode, image=world.encode_image, dims=(64,)),
        items=Items(range(len(rows)), labels=labels, images=world.images[rows]),
        compare=world.make_comparison(),
        report=world.report.to_dict(),
    )
    with running(service) as world.url:
        yield world


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium, or set RANKBITS_CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with playwright.sync_playwright() as driver:
        # a container's root may not have Chromium's own sandbox
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """Pages of one test, and whatever they complained of."""

    def __init__(self, browser, world) -> None:
        self.browser, self.world, self.contexts = browser, world, []
        self.complaints: list[str] = []

    def open(self, path="", *, wide=1440, high=900, scheme="light", url=None):
        context = self.browser.new_context(
            viewport={"width": wide, "height": high}, color_scheme=scheme, reduced_motion="reduce"
        )
        context.set_default_timeout(PATIENCE)
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: m.type in ("error", "warning") and self.note(m.text))
        page.on("pageerror", lambda error: self.note(str(error)))
        page.on("requestfailed", lambda r: self.note(f"{r.method} {r.url} {r.failure}"))
        page.on("response", lambda r: r.status >= 400 and self.note(f"{r.status} {r.url}"))
        page.goto(f"{url or self.world.url}/{path}")
        page.wait_for_selector("#main h2")
        return page

    def note(self, complaint: str) -> None:
        if "ERR_ABORTED" not in complaint:  # a newer question ends an older one
            self.complaints.append(complaint)


@pytest.fixture
def visit(browser, world):
    visit = Visit(browser, world)
    yield visit
    for context in visit.contexts:
        context.close()
    assert visit.complaints == []


def drawn(page) -> list[dict]:
    """The bands as they stand on the page."""
    return page.eval_on_selector_all(
        ".band",
        """bands => bands.map(band => ({
            distance: Number(band.dataset.band),
            head: band.querySelector("h3").textContent,
            open: band.classList.contains("open"),
            ids: [...band.querySelectorAll("a.tile")].map(tile => tile.dataset.tile),
        }))""",
    )


def loaded(page) -> None:
    """Every picture is there; one that is broken fails here."""
    page.evaluate("Promise.all([...document.images].map(image => image.decode()))")


def titled(page, title: str) -> None:
    from playwright.sync_api import expect

    expect(page).to_have_title(title, timeout=PATIENCE)


def agrees(page, reply: dict, far: np.ndarray) -> None:
    """The bands drawn are those of the API and those of the distances, ties by insertion."""
    bands, order = drawn(page), np.argsort(far, kind="stable")[: reply["k"]]
    assert [b["distance"] for b in bands] == [b["distance"] for b in reply["bands"]]
    assert [b["ids"] for b in bands] == [[i["id"] for i in b["items"]] for b in reply["bands"]]
    assert [i for b in bands for i in b["ids"]] == [str(i) for i in order]
    assert [b["distance"] for b in bands] == sorted(set(far[order].tolist()))
    for band in bands:
        count, shown = int((far == band["distance"]).sum()), len(band["ids"])
        assert band["head"].startswith(f"distance {band['distance']} · ")
        if count > 1:
            assert f"{count} items tied" in band["head"]
        assert (f", {shown} shown" in band["head"]) == (shown < count)
        assert band["open"] == (shown < count)


def test_the_start_shows_items_and_what_is_served(visit, world):
    page = visit.open()
    assert page.inner_text("#size") == f"{len(world.codes):,} items · {BITS} bits"
    assert page.locator("a.tile").count() == 60
    face = page.locator("a.tile img").first
    assert page.get_by_role("link", name=f"item 0, label {world.labels[0]}").count() == 1
    loaded(page)
    assert "pixels" in face.get_attribute("class")
    page.get_by_role("button", name="Next").click()
    page.wait_for_selector('a.tile[data-tile="60"]')
    assert "61 to 120 of 1,497" in page.inner_text(".pages")


def test_bands_are_those_of_the_api_and_of_the_codes(visit, world):
    page = visit.open()
    page.fill("#words", "17")
    page.click(".go")
    page.wait_for_selector(".band")
    reply, far = world.ask("/search", {"id": "17", "k": 20}), world.distances(world.codes[17:18])
    agrees(page, reply, far)
    assert drawn(page)[0]["head"] == "distance 0 · the query itself"
    same = page.eval_on_selector_all("a.tile.same", "tiles => tiles.map(t => t.dataset.tile)")
    order = np.argsort(far, kind="stable")[:20]
    assert same == [str(i) for i in order if world.labels[i] == world.labels[17] and i != 17]
    said = page.inner_text("#said")
    assert said.startswith("20 results for item 17, nearest at distance 0, ")
    assert f"goes on: {(far == far[order[-1]]).sum()} items tied" in said


def test_the_open_band_can_be_shown_whole(visit, world):
    page = visit.open("#/search?id=17")
    cut = world.ask("/search", {"id": "17"})["cut"]
    assert cut > 0 and page.inner_text("a.more b") == f"+{cut}"
    page.click("a.more")
    page.wait_for_selector(f'[data-results="{20 + cut}"]')
    assert page.locator(".band.open, .more").count() == 0
    assert page.url.endswith(f"#/search?id=17&k={20 + cut}")
    agrees(
        page, world.ask("/search", {"id": "17", "k": 20 + cut}), world.distances(world.codes[17])
    )


def test_a_click_searches_and_back_returns(visit, world):
    page = visit.open("#/search?id=17")
    second = page.locator("a.tile").nth(1)
    chosen = second.get_attribute("data-tile")
    second.click()
    titled(page, f"item {chosen} · rankbits")
    assert page.url.endswith(f"#/search?id={chosen}")
    agrees(page, world.ask("/search", {"id": chosen}), world.distances(world.codes[int(chosen)]))
    page.go_back()
    titled(page, "item 17 · rankbits")
    assert page.input_value("#words") == "17"


def test_the_keyboard_is_enough(visit, world):
    page = visit.open()
    at = "document.activeElement"
    page.keyboard.press("/")
    assert page.evaluate(f"{at}.id") == "words"
    page.keyboard.type("17")
    page.keyboard.press("Enter")
    page.wait_for_selector(".band")
    page.evaluate("document.querySelector('#k').focus()")
    for _ in range(2):  # past the table of the histogram
        page.keyboard.press("Tab")
    ids = [i for band in drawn(page) for i in band["ids"]]
    assert page.evaluate(f"{at}.dataset.tile") == ids[0]
    page.keyboard.press("ArrowRight")
    assert page.evaluate(f"{at}.dataset.tile") == ids[1]
    outline = page.evaluate(f"getComputedStyle({at}).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    top = [band["ids"][0] for band in drawn(page)]
    assert page.evaluate(f"{at}.dataset.tile") == top[1]
    page.keyboard.press("ArrowUp")
    page.keyboard.press("End")
    assert "more" in page.evaluate(f"{at}.className")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(f"{at}.dataset.tile") == ids[-1]
    page.keyboard.press("Enter")
    titled(page, f"item {ids[-1]} · rankbits")
    first = world.ask("/search", {"id": ids[-1]})["bands"][0]["items"][0]["id"]
    page.wait_for_selector(f'a.tile[data-tile="{first}"]:focus')
    page.keyboard.press("Escape")
    page.wait_for_selector(".welcome")
    assert page.url.endswith("#/search") and page.input_value("#words") == ""
    page.focus("#tab-search")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".quality")
    assert page.get_attribute("#tab-quality", "aria-selected") == "true"
    assert page.evaluate(f"{at}.id") == "tab-quality"


def test_differing_bits_are_marked_and_not_by_colour_alone(visit, world):
    page = visit.open("#/search?id=17")
    assert page.locator(".strip .own rect").count() == BITS
    ones = page.locator(".strip .own rect.on").count()
    assert ones == int((np.asarray(world.codes[17].signs()) > 0).sum())
    tile = page.locator("a.tile").nth(3)
    other = int(tile.get_attribute("data-tile"))
    apart = np.flatnonzero(
        np.asarray(world.codes[17].signs())[0] != np.asarray(world.codes[other].signs())[0]
    )
    for look in (tile.hover, tile.focus):
        look()
        assert page.locator(".strip .mark").count() == len(apart)
        caption = page.inner_text(".code .caption")
        assert caption.startswith(f"Item {other} differs in {len(apart)} of {BITS} bits: ")
        listed = [int(n) for n in re.findall(r"\d+", caption.split(": ")[1])]
        assert listed == (apart[:12] + 1).tolist()
        page.mouse.move(5, 5)
    page.locator("#words").focus()
    assert page.locator(".strip .mark").count() == 0
    ticks = page.locator(f'a.tile[data-tile="{other}"] .trace .differ').get_attribute("d")
    assert [int(float(x) - 0.1 + 0.5) for x in re.findall(r"M([\d.]+)", ticks)] == apart.tolist()


def test_the_histogram_and_the_precision_are_the_apis(visit, world):
    page = visit.open("#/search?id=17")
    reply = world.ask("/search", {"id": "17"})
    counts, relevant = reply["histogram"]["all"], reply["histogram"]["relevant"]
    page.click(".numbers summary")
    rows = page.eval_on_selector_all(
        ".numbers tbody tr", "rows => rows.map(r => [...r.cells].map(c => Number(c.textContent)))"
    )
    assert rows == [[d, n, relevant[d]] for d, n in enumerate(counts) if n]
    far = world.distances(world.codes[17])
    assert counts == np.bincount(far, minlength=BITS + 1).tolist()
    assert page.locator(".histogram .near rect").count() == sum(n > 0 for n in relevant)
    assert page.text_content(".histogram .cut-label") == "top 20 ends"
    ap = reply["ap"]
    words = f"ties could make it {ap['worst']:.4f} to {ap['best']:.4f}"
    assert page.inner_text(".side .reading").split("\n") == [f"{ap['mean']:.4f}", words]
    span = page.locator(".side .meter .span")
    assert float(span.get_attribute("x")) == pytest.approx(100 * ap["worst"])
    others = np.arange(len(far)) != 17
    ranking = rb.rank(far[None, others], (world.labels == world.labels[17])[None, others])
    assert ap["mean"] == pytest.approx(rb.average_precision(ranking)[0])


GIVEN = """(target, [how, data, name]) => {
    const bytes = Uint8Array.from(atob(data), c => c.charCodeAt(0));
    const files = new DataTransfer();
    files.items.add(new File([bytes], name, { type: "image/png" }));
    const [drag, clip] = [{ dataTransfer: files }, { clipboardData: files }];
    const make = { drop: () => new DragEvent("drop", { ...drag, bubbles: true }),
                   paste: () => new ClipboardEvent("paste", { ...clip, bubbles: true }) };
    target.dispatchEvent(make[how]());
}"""


@pytest.mark.parametrize("how", ["pick", "drop", "paste"])
def test_an_image_can_be_picked_dropped_or_pasted(visit, world, how):
    page = visit.open()
    raw = world.png(world.order[3])
    if how == "pick":
        page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": raw})
    else:
        page.eval_on_selector("main", GIVEN, [how, base64.b64encode(raw).decode(), "a.png"])
    page.wait_for_selector(".band")
    code = world.encode_image(io.BytesIO(raw))
    agrees(page, world.ask("/search/image?k=20", raw), world.distances(code))
    assert page.get_attribute(".query img", "src").startswith("blob:")
    assert page.inner_text("#asked") == "Your image"
    assert page.url.endswith(f"#/search?code={code.packed[0].tobytes().hex()}")
    page.reload()  # the address alone finds the same
    page.wait_for_selector(".band")
    agrees(page, world.ask("/search/image?k=20", raw), world.distances(code))


def test_a_vector_and_a_code_can_be_typed(visit, world):
    page = visit.open()
    row = world.inputs[world.order[5]]
    page.select_option("#by", "vector")
    page.fill("#words", ", ".join(map(str, row)))
    page.keyboard.press("Enter")
    page.wait_for_selector(".band")
    code = world.quantizer.encode(row[None])
    agrees(page, world.ask("/search", {"vector": row.tolist()}), world.distances(code))
    page.select_option("#by", "vector")
    page.fill("#words", "1, nan, 3")
    page.keyboard.press("Enter")
    assert page.inner_text("#trouble") == (
        "A vector must be finite numbers, separated by commas or spaces."
    )


def test_a_bad_file_shows_the_services_sentence(visit, world):
    page = visit.open("#/search?id=17")
    before, told = drawn(page), set()
    for raw in (b"no image at all", world.png(0)[:60], b""):
        with page.expect_response("**/search/image**") as reply:
            page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": raw})
        sentence = reply.value.json()["error"]
        page.wait_for_selector(f"#trouble:has-text({json.dumps(sentence)})")
        assert page.inner_text("#trouble") == sentence and sentence.endswith(".")
        assert drawn(page) == before
        assert reply.value.status in (415, 422)
        told.add(sentence)
    assert len(told) == 3
    refused = [c for c in visit.complaints if "Failed to load resource" not in c]
    assert len(refused) == 3 and all(c.endswith("/search/image?k=20") for c in refused)
    visit.complaints.clear()
    page.locator("body").press("Escape")
    assert page.locator("#trouble").is_hidden()


HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


def test_what_the_service_says_stays_text(visit, world):
    page = visit.open()
    item = {
        "id": HOSTILE,
        "title": f"A {HOSTILE}",
        "label": HOSTILE,
        "image": "//elsewhere.invalid/x.png",
    }
    page.route("**/items?*", lambda r: r.fulfill(json={"total": 1, "items": [item]}))
    page.reload()
    page.wait_for_selector("a.tile .words")
    assert page.inner_text("a.tile .words") == f"A {HOSTILE}"
    assert page.locator("#main img").count() == 0
    page.fill("#words", HOSTILE)
    page.keyboard.press("Enter")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "img src=x" in page.inner_text("#trouble") and page.locator("main img").count() == 0
    page.wait_for_selector("a.tile .words")  # something to pick instead
    assert page.title() != "owned" and page.locator("#trouble button").count() == 0
    assert [c for c in visit.complaints if "Failed to load" not in c] == [f"404 {world.url}/search"]
    visit.complaints.clear()


def test_a_service_that_is_gone_is_a_sentence_and_can_be_asked_again(visit, world):
    page = visit.open()
    page.route("**/search", lambda route: route.abort())
    page.click("a.tile >> nth=2")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "The service does not answer. Is it still running?" in page.inner_text("#trouble")
    page.unroute("**/search")
    page.click("#trouble button")
    page.wait_for_selector(".band")
    assert page.locator("#trouble").is_hidden()
    assert all("/search" in c or "Failed to load" in c for c in visit.complaints)
    visit.complaints.clear()


def test_compare_shows_every_code_with_its_precision(visit, world):
    page = visit.open("#/search?id=17")
    page.click("#tab-compare")
    page.wait_for_selector(".method")
    reply = world.ask("/compare?id=17&k=20")
    shown = page.eval_on_selector_all(
        ".method",
        """all => all.map(m => [m.dataset.method, m.querySelector(".number").textContent,
            m.querySelector(".weight").textContent,
            [...m.querySelectorAll("a.tile")].map(t => t.dataset.tile)])""",
    )
    wanted = [
        [
            m["name"],
            f"{m['ap']['mean']:.4f}",
            (f"{m['bits']} bits, " if m["bits"] else "") + f"{m['bytes']} bytes an item",
            [item["id"] for band in m["bands"] for item in band["items"]],
        ]
        for m in reply["methods"]
    ]
    assert shown == wanted and len(shown) == 5
    assert page.url.endswith("#/compare?id=17")
    second = page.locator(".method a.tile").nth(1)
    chosen = second.get_attribute("data-tile")
    second.click()
    titled(page, f"item {chosen}, compared · rankbits")
    assert "#/compare?id=" in page.url and page.locator(".method").count() == 5


def test_quality_shows_the_report(visit, world):
    page = visit.open("#/quality", wide=390, high=844)
    figures = world.report.to_dict()["figures"]
    rows = page.eval_on_selector_all(
        ".figures tbody tr", "rows => rows.map(r => [r.dataset.figure, r.cells[1].textContent])"
    )
    assert rows == [[n, f"{f['mean']:.4f}"] for n, f in list(figures.items())[1:]]
    assert page.inner_text(".headline .huge") == f"{figures['mAP']['mean']:.4f}"
    term = page.get_by_role("button", name="MRR")
    told = page.locator('tr[data-figure="MRR"] .definition')
    assert not told.is_visible()
    term.focus()
    assert told.is_visible() and told.inner_text() == figures["MRR"]["definition"]
    page.keyboard.press("Escape")
    assert not told.is_visible()


def test_an_index_alone_is_searched_by_its_ids(visit, world):
    """No items, no labels, no model; long codes, and ids that an address could misread."""
    from rankbits.serve import Service

    names = ["a/b?c#d&e=é 100%", "..", "<b>", *(f"long-{'x' * 200}-{i}" for i in range(40))]
    codes = rb.pack(np.random.default_rng(0).normal(size=(len(names), 300)))
    codes = rb.Codes(np.concatenate([codes.packed[:1], codes.packed[:-1]]), 300)  # a tie at 0
    with running(Service(rb.HammingIndex(300).add(codes, names))) as url:
        page = visit.open(wide=390, high=844, url=url)
        assert page.locator("a.tile").count() == len(names)
        assert page.locator("#pick").is_hidden()
        page.locator("a.tile").first.click()
        page.wait_for_selector(".band")
        bands = drawn(page)
        assert bands[0]["ids"] == [names[0], names[1]]
        assert bands[0]["head"] == "distance 0 · 2 items tied, the query among them"
        far = np.asarray(rb.hamming(codes[:1], codes))[0].astype(int)
        order = np.argsort(far, kind="stable")[:20]
        assert [i for band in bands for i in band["ids"]] == [names[i] for i in order]
        assert page.locator("a.tile .glyph").count() == 20  # no picture: its code is one
        assert page.locator(".histogram .plain rect").count() == len(set(far.tolist()))
        assert page.locator(".side .meter").count() == 0
        assert page.evaluate(CUT_OFF) == []
        page.reload()
        page.wait_for_selector(".band")
        assert drawn(page) == bands
        for tab, heading in (("compare", "Nothing to compare yet"), ("quality", "No report yet")):
            page.click(f"#tab-{tab}")
            page.wait_for_selector(f"#panel-{tab} h2")
            assert page.inner_text(f"#panel-{tab} h2") == heading
        page.context.close()


CUT_OFF = """() => {
    const wide = document.documentElement.clientWidth;
    const told = el => `${el.tagName}.${el.getAttribute("class")} ${el.textContent.slice(0, 30)}`;
    const seen = [...document.body.querySelectorAll("*")].filter(el =>
        el.checkVisibility({ visibilityProperty: true }) && !el.closest(".unseen, .skip"));
    const out = seen.filter(el => {
        const r = el.getBoundingClientRect();
        return r.width && (r.right > wide + 0.5 || r.left < -0.5);
    });
    const clipped = seen.filter(el => {
        const style = getComputedStyle(el);
        return style.overflowX === "hidden" && style.textOverflow !== "ellipsis"
            && el.scrollWidth > el.clientWidth + 1;
    });
    return [...out, ...clipped].map(told);
}"""


def settled(page) -> None:
    """Every picture loaded, those below the fold too."""
    wide = page.viewport_size["width"]
    page.set_viewport_size({"width": wide, "height": page.evaluate("document.body.scrollHeight")})
    loaded(page)


def lighter(picture: Path) -> None:
    """The same picture in few colours, for it is kept in the repository."""
    from PIL import Image

    few = Image.open(picture).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    few.save(picture, optimize=True)


SIZES = ((390, "light"), (390, "dark"), (768, "light"), (1440, "light"), (1440, "dark"))


@pytest.mark.parametrize(("wide", "scheme"), SIZES)
def test_nothing_is_cut_off(visit, tmp_path, wide, scheme):
    folder = PICTURES if os.environ.get("RANKBITS_PICTURES") and wide != 768 else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    page = visit.open(wide=wide, scheme=scheme)
    for view, path in VIEWS.items():
        page.set_viewport_size({"width": wide, "height": 844 if wide == 390 else 900})
        page.goto(f"{visit.world.url}/{path}")
        page.wait_for_selector(SHOWN[view])
        settled(page)
        if view == "search" and wide == 1440:
            page.locator("a.tile").nth(4).hover()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        assert page.evaluate(CUT_OFF) == [], view
        picture = folder / f"page-{view}-{wide}-{scheme}.png"
        page.screenshot(path=picture, full_page=True)
        assert picture.stat().st_size > 10_000
        if folder == PICTURES:
            lighter(picture)
        page.mouse.move(0, 0)


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: npm install --prefix build axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit, scheme):
    page = visit.open(scheme=scheme)
    page.evaluate(AXE.read_text())
    for view, path in VIEWS.items():
        page.goto(f"{visit.world.url}/{path}")
        page.wait_for_selector(SHOWN[view])
        found = page.evaluate("axe.run().then(r => r.violations)")
        told = [(v["id"], v["impact"], v["nodes"][0]["html"][:200]) for v in found]
        assert [v for v in told if v[1] in ("serious", "critical")] == [], view


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda p: p.name)
def test_static_files_keep_the_policy(path):
    """No markup made of data, no code in the document, nothing from elsewhere; one idea a file."""
    text = path.read_text()
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "@import",
    ):
        assert word not in text, word
    assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= {"http://www.w3.org/2000/svg"}
    if path.suffix == ".html":
        assert not re.search(r"\son\w+=|\sstyle=|<style|<script(?![^>]*\ssrc=)", text)
    assert len(text.splitlines()) <= 320
