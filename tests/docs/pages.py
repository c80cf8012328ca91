"""Pages of the site as Markdown: their headings, links, code and tables of contents."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def markdown():
    """Pages that are written by hand or by programs of `bench`, without what the site builds."""
    return sorted(DOCS.glob("*.md"))


def blocks(path, language):
    """Code of the fenced blocks in a language."""
    return [code for name, code in FENCE.findall(path.read_text()) if name == language]


def links(path):
    """Targets of the links and pictures of a page, code aside."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", path.read_text()))
    return LINK.findall(text)


def anchors(path):
    """Names of the headings, as code hosts and MyST derive them."""
    found = []
    for title in HEADING.findall(FENCE.sub("", path.read_text())):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        found.append(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


def contents(path):
    """Documents in the tables of contents of a page, relative to docs/, without a suffix."""
    text = path.read_text()
    bodies = [body for name, body in FENCE.findall(text) if name == "{toctree}"]
    bodies += re.findall(r"^\.\. toctree::\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    entries = [line.strip() for body in bodies for line in body.splitlines()]
    folder = path.parent.relative_to(DOCS)
    return [(folder / entry).as_posix() for entry in entries if entry and entry[0] != ":"]
