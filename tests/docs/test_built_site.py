"""The built site: no dead link, anchor or picture, nothing from the network, every name indexed."""

import importlib
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pages
import pytest
import test_reference

import triegp

SITE = pages.DOCS / "_build" / "html"
pytestmark = pytest.mark.skipif(
    not (SITE / "index.html").exists(), reason="docs/_build/html is not there: make docs"
)
LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}
NOT_LOADED = {"canonical", "search", "next", "prev", "index", "author", "help", "top"}


class Page(HTMLParser):
    """ids: names that can be linked. links, loaded: addresses of links, and of what is fetched."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        address = values.get(LOADED.get(tag, ""))
        if address and not (tag == "link" and values.get("rel") in NOT_LOADED):
            self.loaded.append(address)


@cache
def read(path):
    return Page(path.read_text())


def html_pages():
    return [path for path in sorted(SITE.rglob("*.html")) if "_static" not in path.parts]


def local(path, address):
    """File and anchor that an address leads to; None if it leads elsewhere."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    return target, unquote(parts.fragment)


def test_no_link_is_dead():
    dead = []
    for path in html_pages():
        for address in read(path).links:
            found = local(path, address)
            if found is None:
                continue
            target, anchor = found
            there = target.is_file() and (
                not anchor or target.suffix != ".html" or anchor in read(target).ids
            )
            if not there:
                dead.append(f"{path.relative_to(SITE)}: {address}")
    assert dead == []


def test_what_pages_load_is_in_the_site():
    missing = []
    for path in html_pages():
        for address in read(path).loaded:
            found = local(path, address)
            if address.startswith("data:"):
                continue
            if found is None or not found[0].is_file():
                missing.append(f"{path.relative_to(SITE)}: {address}")
    assert missing == []


def test_style_sheets_load_nothing_from_the_network():
    for path in SITE.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//", path.read_text(errors="replace")) == [], (
            path
        )


def test_every_public_name_is_in_the_index():
    index = read_inventory(SITE / "objects.inv")
    for room in test_reference.ROOMS:
        module = importlib.import_module(f"triegp.{room}")
        for name in module.__all__:
            names = {f"triegp.{room}.{name}", f"triegp.{name}"}
            assert names & index.keys(), f"triegp.{room}.{name}"
    for name in triegp.__all__:
        assert f"triegp.{name}" in index


@pytest.mark.parametrize("kind", ["TrieGPRegressor", "BinaryTreeGPRegressor"])
def test_inherited_methods_and_attributes_are_in_the_index(kind):
    index = read_inventory(SITE / "objects.inv")
    for name in [
        "fit",
        "predict",
        "predict_interval",
        "partial_fit",
        "save",
        "score",
        "rows_",
        "encoders_",
    ]:
        assert f"triegp.{kind}.{name}" in index


def test_pages_that_were_there_before_are_there():
    names = {path.relative_to(SITE).with_suffix("").as_posix() for path in html_pages()}
    assert {path.stem for path in pages.markdown()} <= names
    assert {"api/index", "auto_examples/index", "search", "genindex"} <= names


@cache
def read_inventory(path: Path):
    """{name: address} of the objects that the site documents."""
    from sphinx.util.inventory import InventoryFile

    data = InventoryFile.loads(path.read_bytes(), uri="").data
    items = [one for kind, found in data.items() if "py:" in kind for one in found.items()]
    return {name: item.uri for name, item in items}
