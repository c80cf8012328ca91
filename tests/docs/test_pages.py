"""The pages themselves: tables of contents, links, code, and claims that other pages measure."""

import re

import pages
import pytest

PAGES = pages.markdown()
BY_NAME = [pytest.param(path, id=path.stem) for path in PAGES]
LINKED = [*BY_NAME, pytest.param(pages.ROOT / "README.md", id="README")]
BUILT = {"auto_examples/index"}  # sphinx-gallery writes it
WANTED = """index get_started tour which user_guide guide uncertainty tables streaming large cuda
serving recipes how_it_works notation training forest engine sros evidence results calibration
tables_results benchmarks contributing changelog api/index"""


def test_every_page_is_there_and_in_one_table_of_contents():
    sources = [*PAGES, *sorted((pages.DOCS / "api").glob("*.rst"))]
    names = {path.relative_to(pages.DOCS).with_suffix("").as_posix() for path in sources}
    listed = [name for path in sources for name in pages.contents(path)]
    assert set(WANTED.split()) <= names
    assert sorted(set(listed)) == sorted(listed)
    assert set(listed) - BUILT == names - {"index"}


@pytest.mark.parametrize("path", LINKED)
def test_links_lead_somewhere(path):
    """Files that exist, and headings that a code host finds, too."""
    for link in pages.links(path):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if "auto_examples" not in name:
            assert target.exists(), link
        if anchor:
            assert anchor in pages.anchors(target), link


@pytest.mark.parametrize("path", LINKED)
def test_code_that_is_not_run_compiles(path):
    for code in pages.blocks(path, "python"):
        compile(code, path.name, "exec")


@pytest.mark.parametrize("path", LINKED)
def test_sessions_are_doctests(path):
    """A block of ```pycon begins with a prompt, so that pytest runs it."""
    for code in pages.blocks(path, "pycon"):
        assert code.startswith(">>> ")


@pytest.mark.parametrize(
    "name", ["tour", "recipes", "streaming", "serving", "uncertainty", "index"]
)
def test_new_pages_show_code_that_runs(name):
    assert pages.blocks(pages.DOCS / f"{name}.md", "pycon")


def coverages(text, group):
    """{(case, estimator): coverage in per cent of 90 % intervals at new inputs} of one section."""
    section = text.split(f"\n## {group}\n")[1].split("\n## ")[0].split("Coverage at training")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip(" *") for cell in row] for row in rows if len(row) == 7]
    return {(c[0], kind): float(c[k]) for c in cells[1:] for kind, k in (("B", 2), ("F", 5))}


@pytest.mark.parametrize("name", ["index", "uncertainty"])
def test_the_coverage_that_is_claimed_was_measured(name):
    text = (pages.DOCS / "calibration.md").read_text()
    found = {}
    for group in re.findall(r"^## (.+)$", text.split("## Coverage by noise")[0], re.MULTILINE):
        found |= coverages(text, group)
    inside = [
        value
        for (case, _), value in found.items()
        if case != "10 rows" and not case.startswith("y = 3 x")
    ]
    claim = re.search(
        r"between\s+([\d.]+)\s+and\s+([\d.]+)\s+%\s+of\s+new\s+observations,?\s+in\s+all\s+(\d+)",
        (pages.DOCS / f"{name}.md").read_text(),
    )
    low, high, count = map(float, claim.groups())
    assert (low, high, count) == (min(inside), max(inside), len(inside))


def test_cases_that_are_shown_are_those_of_the_calibration_page():
    measured = (pages.DOCS / "calibration.md").read_text().splitlines()
    shown = (pages.DOCS / "uncertainty.md").read_text().splitlines()
    rows = [line for line in shown if line.startswith("| ") and line.count("|") == 8]
    assert len(rows) == 11
    assert [row for row in rows if row not in measured] == []
