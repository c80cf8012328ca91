"""Reports in headless Chromium: no errors, no requests, every width, light, dark, print."""

from itertools import pairwise

import pytest

from chromium import open_browser
from report_problems import fit_quietly, make_frame

WIDTHS = (320, 768, 1280)


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    X, y = make_frame(400)
    y[[3, 50]] += 30.0
    names = {"size": "<b>size</b> of the thing, a rather long name of a column", "kind": "kind"}
    X = X.rename(columns=names)
    model = fit_quietly(X[:300], y[:300])
    path = tmp_path_factory.mktemp("report") / "report.html"
    return model.report(path, X[300:], y[300:], title="A title that is long enough to wrap")


@pytest.fixture
def visit(browser, report):
    """Opens the report; afterwards, there must have been no error and no other request."""
    said, asked, pages = [], [], []

    def visit(**options):
        page = browser.new_page(**options)
        pages.append(page)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(report.as_uri())
        return page

    yield visit
    assert said == []
    assert set(asked) == {report.as_uri()}
    for page in pages:
        page.close()


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_does_not_scroll_sideways(visit, width, scheme):
    page = visit(viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("figure svg").first.bounding_box()["width"] > 200
    # Nothing sticks out, but inside tables that scroll by themselves.
    out = page.evaluate(
        """width => [...document.querySelectorAll("main *")]
            .filter(e => !e.closest(".scroll, svg, .unseen"))
            .filter(e => e.getBoundingClientRect().right > width + 1)
            .map(e => e.outerHTML.slice(0, 80))""",
        width,
    )
    assert out == []


def test_light_and_dark_differ_and_the_toggle_switches(visit):
    page = visit(color_scheme="light")
    button = page.get_by_role("button", name="Switch to dark colours")
    light = background(page)
    button.press("Enter")  # by keyboard
    dark = background(page)
    assert dark != light
    assert page.get_by_role("button", name="Switch to light colours").is_visible()
    page.reload()
    assert background(page) == dark
    page.get_by_role("button", name="Switch to light colours").click()
    assert background(page) == light


def test_dark_follows_the_system(visit):
    colours = {background(visit(color_scheme=scheme)) for scheme in ("light", "dark")}
    assert len(colours) == 2


def contrast(one, other):
    def luminance(colour):
        parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(visit, scheme):
    page = visit(color_scheme=scheme)
    paper = background(page)
    colours = page.evaluate(
        """() => [...new Set([...document.querySelectorAll("body *")]
            .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
            .filter(e => !e.closest("script, style, .skip, svg title, svg desc"))
            .map(e => getComputedStyle(e)[e.closest("svg") ? "fill" : "color"]))]"""
    )
    assert len(colours) >= 3
    assert min(contrast(colour, paper) for colour in colours) >= 4.5


def test_the_page_reads_without_script(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("h2", has_text="Calibration").is_visible()
    assert page.locator("#theme").is_hidden()
    assert page.locator("figure svg").count() >= 6
    context.close()


def test_tables_are_sorted_by_their_heads(visit):
    page = visit()
    table = page.locator("table[data-sortable]").last
    column = "table => [...table.tBodies[0].rows].map(row => Number(row.cells[1].dataset.value))"
    table.get_by_role("button", name="Target").click()
    down = table.evaluate(column)
    assert down == sorted(down, reverse=True)
    table.get_by_role("button", name="Target").click()
    assert table.evaluate(column) == sorted(down)
    assert table.locator("th[aria-sort=ascending]").count() == 1


def test_every_part_has_a_name_for_those_who_do_not_see_it(visit):
    page = visit()
    headings = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map(e => Number(e.tagName[1]))"
    )
    assert headings[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(headings))
    assert page.evaluate("document.querySelectorAll('th:not([scope])').length") == 0
    assert page.evaluate("document.querySelectorAll('table:not(:has(caption))').length") == 0
    names = page.evaluate(
        """[...document.querySelectorAll("svg[role=img]")]
            .map(e => e.getAttribute("aria-labelledby").split(" ")
            .map(id => document.getElementById(id).textContent))"""
    )
    assert all(len(part) > 5 for pair in names for part in pair)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator("nav").get_by_role("link", name="Calibration").is_visible()


def test_links_lead_to_sections(visit):
    page = visit()
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1


def test_it_prints(visit, tmp_path):
    page = visit(color_scheme="dark")
    page.pdf(path=tmp_path / "report.pdf", format="A4", prefer_css_page_size=True)
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    page.emulate_media(media="print")
    assert background(page) == "rgb(255, 255, 255)"  # paper is white, also in the dark
    assert page.locator("nav").is_hidden()
