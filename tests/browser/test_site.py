"""The built site in Chromium: pages open without errors and without the network; search works."""

import functools
import http.server
import re
import threading
from pathlib import Path

import pytest

from chromium import open_browser

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
PAGES = ["index", "tour", "how_it_works", "results", "serving", "auto_examples/index"]
PAGES += ["plots", "report", "api/index", "api/generated/triegp.TrieGPRegressor"]
PHONE = {"width": 390, "height": 844}

pytestmark = pytest.mark.skipif(
    not (SITE / "index.html").exists(), reason="docs/_build/html is not there: make docs"
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    handler = functools.partial(Quiet, directory=str(SITE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


@pytest.fixture
def visit(browser, address):
    """Opens pages and fails at the end if one had an error or asked for what is not there."""
    context = browser.new_context()
    problems = []

    def go(name, size=None):
        page = context.new_page()
        if size:
            page.set_viewport_size(size)
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("requestfailed", lambda request: problems.append(f"failed: {request.url}"))
        page.on("response", lambda r: problems.append(r.url) if r.status >= 400 else None)
        page.on("request", lambda r: problems.append(r.url) if outside(r.url) else None)
        page.goto(f"{address}/{name}", wait_until="networkidle")
        return page

    def outside(url):
        return not url.startswith((address, "data:", "blob:"))

    yield go
    context.close()
    assert problems == []


@pytest.mark.parametrize("name", PAGES)
def test_pages_open_without_errors(visit, name):
    page = visit(f"{name}.html")
    assert page.locator("h1").first.inner_text().strip(" #")
    pictures = page.locator("article img").evaluate_all("all => all.map(e => e.naturalWidth)")
    assert all(width > 0 for width in pictures)


@pytest.mark.parametrize("name", PAGES)
def test_pages_fit_a_phone(visit, name):
    page = visit(f"{name}.html", PHONE)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"]


@pytest.mark.parametrize(
    ("query", "found"), [("partial_fit", "streaming.html"), ("coverage", "uncertainty.html")]
)
def test_search_finds_a_page(visit, query, found):
    page = visit(f"search.html?q={query}")
    link = page.locator(f"#search-results a[href^='{found}']").first
    link.wait_for(timeout=20_000)
    link.click()
    page.wait_for_url(f"**/{found}*")


def test_search_opens_from_the_keyboard(visit):
    page = visit("index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("quantiles")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=quantiles*")
    page.locator("#search-results li").first.wait_for(timeout=20_000)


def test_dark_and_light(browser, address):
    shades = []
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(f"{address}/index.html", wait_until="networkidle")
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        shades.append(sum(map(int, re.findall(r"\d+", color)[:3])))
        context.close()
    assert shades[0] > 600
    assert shades[1] < 150
