"""The file: whole, valid, escaped, small, the same for equal models; for every kind of model."""

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import triegp
from report_problems import QUICK, fit_quietly, make_frame, make_numbers
from triegp import BinaryTreeGPRegressor, TrieGPRegressor
from triegp.report import write_report
from triegp.report.markup import Html, join, tag, text

HOSTILE = [
    "<script>alert(1)</script>",
    "</style><b>",
    "a\"b'c&d",
    "x\x00y\x1f",
    "$\\frac{1$ {0}",
    "温度 🌡",
]
VOID = {"meta", "br", "hr"}


class Checker(HTMLParser):
    """Notes what the page holds; elements must nest, and ids be unique."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.hrefs, self.counts, self.words = [], [], [], {}, []

    def handle_starttag(self, name, attributes):
        self.counts[name] = self.counts.get(name, 0) + 1
        values = dict(attributes)
        assert len(values) == len(attributes), f"{name} repeats an attribute"
        if "id" in values:
            self.ids.append(values["id"])
        refers = values.get("href") or values.get("xlink:href")
        if refers:
            self.hrefs.append(refers)
        self.hrefs += [f"#{one}" for one in re.findall(r"url\(#([^)]*)\)", str(attributes))]
        self.hrefs += [f"#{one}" for one in (values.get("aria-labelledby") or "").split()]
        assert not any(key.startswith("on") for key in values)
        assert "src" not in values
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.handle_starttag(name, attributes)
        if name not in VOID:
            self.open.pop()

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)


def check(path):
    """The page as a Checker saw it; raises AssertionError if it is not sound."""
    content = path.read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(content)
    checker.close()
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert {one[1:] for one in checker.hrefs} <= set(checker.ids)
    assert all(one.startswith("#") for one in checker.hrefs)
    assert checker.counts["script"] == checker.counts["style"] == checker.counts["h1"] == 1
    assert checker.counts.get("figure", 0) == checker.counts.get("svg", 0)
    assert checker.counts.get("svg", 0) == checker.counts.get("desc", 0)
    assert "image" not in checker.counts
    assert "img" not in checker.counts
    assert not re.search(r"#fe01[0-9a-f]{2}", content)  # every sentinel colour was replaced
    assert path.stat().st_size < 2_000_000
    checker.text = " ".join("".join(checker.words).split())
    return checker


@pytest.fixture(scope="module")
def model():
    return fit_quietly(*make_numbers())


def test_markup_escapes_all_but_markup():
    assert (
        tag("p", "<&>\"'", class_='"x"') == '<p class="&quot;x&quot;">&lt;&amp;&gt;&quot;&#x27;</p>'
    )
    assert join("<", Html("<b>"), None, ["&", ("a",)]) == "&lt;<b>&amp;a"
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert tag("p", hidden=True, id=None) == "<p hidden></p>"
    assert text("a\x00b\x1f\ud800") == "a\ufffdb\ufffd\ufffd"


def test_the_method_and_the_function_write_the_same(model, tmp_path):
    one = model.report(tmp_path / "one.html", title="A title", targets=["price"])
    other = write_report(model, str(tmp_path / "two.html"), title="A title", targets=["price"])
    assert one == tmp_path / "one.html"
    assert one.read_bytes() == other.read_bytes()
    found = check(one)
    assert "A title" in found.text
    assert "price" in found.text
    assert found.counts["figure"] >= 6
    assert 'lang="en"' in one.read_text(encoding="utf-8")


def test_equal_models_give_equal_bytes(tmp_path):
    X, y = make_frame()
    paths = []
    for k in range(2):
        model = fit_quietly(X, y)
        model.fit_seconds_ = 1.0
        paths.append(model.report(tmp_path / f"{k}.html"))
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_style_of_the_caller_does_not_matter(model, tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    plain = model.report(tmp_path / "plain.html").read_bytes()
    with plt.style.context("dark_background"), plt.rc_context({"font.size": 30}):
        assert model.report(tmp_path / "dark.html").read_bytes() == plain
        assert plt.rcParams["font.size"] == 30
    assert plt.get_fignums() == []


def test_a_test_set_has_columns_and_figures_of_its_own(tmp_path):
    X, y = make_numbers(400)
    model = fit_quietly(X[:300], y[:300])
    found = check(model.report(tmp_path / "r.html", X[300:], y[300:]))
    assert "Test set" in found.text
    assert "300 rows (leave-one-out) and 100 rows (test set)" in found.text
    assert found.text.count("if intervals are right and rows independent") == 2


def test_leave_one_out_is_not_presented_as_new_rows(model, tmp_path):
    found = check(model.report(tmp_path / "r.html"))
    assert "confidence" not in found.text
    assert "with chance" not in found.text
    assert "All is well" not in found.text
    assert "Error bars were tuned on these rows" in found.text
    assert "calibration by leave-one-out is partly in-sample" in found.text
    assert "leave-one-out is exact for this model" in found.text


def test_hostile_names_and_categories_are_escaped(tmp_path):
    X, y = make_numbers(150, n_features=6)
    frame = pd.DataFrame(X, columns=HOSTILE)
    frame[HOSTILE[0]] = np.where(X[:, 0] > 0.5, "</td><img src=x onerror=alert(1)>", "${x}$\x00")
    model = fit_quietly(frame, y)
    path = model.report(
        tmp_path / "r.html", frame[:40], y[:40], title=HOSTILE[0], targets=["</title><i>$_"]
    )
    found = check(path)
    assert "i" not in found.counts
    assert HOSTILE[0] in found.text
    assert "</style><b>" in found.text
    assert "</td><img src=x onerror=alert(1)>" in found.text
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", path.read_text(encoding="utf-8"))


def test_several_targets_have_a_section_each(tmp_path):
    X, y = make_numbers(150)
    model = fit_quietly(X, np.c_[y, -y], multi_target="shared")
    found = check(model.report(tmp_path / "r.html", X[:50], np.c_[y, -y][:50], targets=["a", "b"]))
    assert {"target0", "target1"} <= set(found.ids)
    assert found.counts["h2"] == 6


def test_targets_that_share_a_sum_of_trees_have_a_section_each(tmp_path):
    X, y = make_numbers(150)
    model = TrieGPRegressor(n_trees=4, max_iter=2, random_state=0, multi_target="shared")
    model.fit(X, np.c_[y, -y])
    found = check(model.report(tmp_path / "r.html", X[:50], np.c_[y, -y][:50], targets=["a", "b"]))
    assert {"target0", "target1"} <= set(found.ids)


def test_many_targets_stay_small_and_say_what_is_left_out(tmp_path):
    X, y = make_numbers(120)
    model = fit_quietly(X, np.repeat(y[:, None], 11, axis=1), multi_target="shared")
    found = check(model.report(tmp_path / "r.html", n_effects=6))
    assert "target7" in found.ids
    assert "target8" not in found.ids
    assert "3 of the 11 targets" in found.text


def test_transformed_targets_stay_in_their_units(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.random((200, 2))
    y = np.exp(3 * X[:, 0] + 0.2 * rng.standard_normal(200))
    found = check(fit_quietly(X, y, target_transform="log").report(tmp_path / "r.html"))
    assert "Transform log" in found.text.replace("Transformlog", "Transform log")


def test_tables_with_gaps_categories_and_dates(tmp_path):
    X, y = make_frame()
    found = check(fit_quietly(X, y).report(tmp_path / "r.html", X[:100], y[:100]))
    assert "1 number, 1 category, 1 ordered category, 1 time" in found.text


def test_models_without_rows_say_what_they_cannot_show(tmp_path):
    X, y = make_numbers(200)
    bare = fit_quietly(X, y, keep_rows=False)
    found = check(bare.report(tmp_path / "r.html"))
    assert "training rows are not kept" in found.text
    assert "Effects need rows" in found.text
    assert "Explained" in found.text  # leave-one-out needs no rows
    assert "distance from the median of the row's distribution" in found.text
    found = check(bare.report(tmp_path / "r.html", X[:60], y[:60]))
    assert "rows of the test set are used instead" in found.text
    assert "Effects need rows" not in found.text
    bare.save(tmp_path / "m.tgp")
    loaded = triegp.load(tmp_path / "m.tgp")
    assert check(loaded.report(tmp_path / "r.html")).counts["figure"] >= 4


def test_models_of_cells_say_what_they_cannot_show(tmp_path, monkeypatch):
    X, y = make_numbers(3_000)
    from triegp.estimators import pieces, whole

    for module in (pieces, whole):
        monkeypatch.setattr(module, "HELD_ROWS", 500)
    monkeypatch.setattr(pieces, "FEWEST_ROWS", 100)
    model = BinaryTreeGPRegressor(**QUICK, max_cells=256).fit(X, y)
    with pytest.raises(ValueError, match="leave-one-out"):
        model.loo_distribution()
    found = check(model.report(tmp_path / "r.html"))
    assert "Accuracy is not known" in found.text
    assert "Leave-one-out of single rows" in found.text
    new, observed = make_numbers(300, seed=5)
    inside = ~model.outside_box(new)
    found = check(model.report(tmp_path / "r.html", new[inside], observed[inside]))
    assert "Accuracy is not known" not in found.text
    assert "There is no leave-one-out of single rows for this model" in found.text
    assert "is exact" not in found.text
    assert "tuned on these rows" not in found.text
    assert found.counts["figure"] >= 5


def test_trees_and_a_smooth_part(tmp_path):
    X, y = make_numbers(150)
    model = TrieGPRegressor(n_trees=4, max_iter=3, random_state=0).fit(X, y)
    found = check(model.report(tmp_path / "r.html", n_effects=2))
    assert "4 trees" in found.text


@pytest.mark.parametrize("n", [2, 5, 30])
def test_few_rows(tmp_path, n):
    X, y = make_numbers(n)
    found = check(fit_quietly(X, y).report(tmp_path / "r.html"))
    assert "There are few rows" in found.text


def test_one_feature_and_a_constant_target(tmp_path):
    X, y = make_numbers(100, n_features=1)
    assert "Two features together" not in check(fit_quietly(X, y).report(tmp_path / "r.html")).text
    found = check(fit_quietly(X, np.full(100, 3.0)).report(tmp_path / "r.html"))
    assert "The target never changes" in found.text


def test_rows_outside_the_box_are_advised_of(tmp_path):
    X, y = make_numbers(300)
    model = fit_quietly(X[:200], y[:200])
    with pytest.warns(UserWarning, match="outside the training box"):
        path = model.report(tmp_path / "r.html", X[200:] + 0.5, y[200:])
    assert "test rows outside the training range" in check(path).text


def test_no_effects_and_few_rows_in_tables(model, tmp_path):
    found = check(model.report(tmp_path / "r.html", n_effects=0, n_rows=1))
    assert "Effect of" not in found.text


def test_an_existing_file_is_replaced_whole_or_stays(model, tmp_path, monkeypatch):
    path = tmp_path / "r.html"
    path.write_text("before")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        model.report(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    model.report(path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert list(tmp_path.iterdir()) == [path]


X20, Y20 = make_numbers(20)
GAP = np.where(np.arange(20) == 3, np.nan, Y20)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"path": "absent/r.html"}, FileNotFoundError, "there is no folder"),
        ({"path": ""}, IsADirectoryError, "the folder"),
        ({"X": X20}, ValueError, "X without y"),
        ({"y": Y20}, ValueError, "y without X"),
        ({"X": X20, "y": Y20[:5]}, ValueError, "y must have 20 rows and 1 targets"),
        ({"X": X20, "y": GAP}, ValueError, r"y must be finite, got \[nan\] at row 3"),
        ({"targets": ["a", "b"]}, ValueError, "targets must name 1 targets, got 2"),
        ({"targets": "y"}, ValueError, "sequence of strings"),
        ({"n_rows": 0}, ValueError, "n_rows"),
        ({"title": 3}, TypeError, "title must be a string"),
        ({"model": LinearRegression().fit(X20, Y20)}, TypeError, "got LinearRegression"),
    ],
)
def test_bad_arguments_are_named(model, tmp_path, arguments, error, message):
    path = tmp_path / arguments.get("path", "r.html")
    with pytest.raises(error, match=message):
        write_report(**{"model": model, **arguments, "path": path})
    assert list(tmp_path.iterdir()) == []
