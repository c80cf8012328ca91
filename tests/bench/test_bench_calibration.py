"""The parts of `python -m bench calibration`: cases, coverage, stored cells, the page."""

import json

import numpy as np
import pytest

from bench import __main__ as command
from bench import calibration, calibration_page
from bench import calibration_cases as cases

RIGHT = {"50": 0.5, "90": 0.9, "99": 0.99}
LOW = {"50": 0.2, "90": 0.9, "99": 0.99}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "FOLDER", tmp_path / "calibration")
    monkeypatch.setattr(calibration_page, "READING", tmp_path / "reading.md")
    (tmp_path / "calibration").mkdir()
    (tmp_path / "reading.md").write_text("What a person wrote.\n")
    return tmp_path


def fake_cell(name, estimator, status="ok", **facts):
    seed = {
        "seed": 0,
        "new": RIGHT,
        "training": RIGHT,
        "by_noise": [],
        "latent_ms": 1.0,
        "error_ms": 1.0,
        "fit_seconds": 1.0,
        "predict_seconds": 1.0,
    }
    cell = {
        "case": name,
        "estimator": estimator,
        "status": status,
        "machine": {"triegp": "0", "numpy": "1"},
        "seeds": [seed | facts] if status == "ok" else [],
        "note": facts.get("note"),
    }
    calibration.path_of(name, estimator).write_text(json.dumps(cell))


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)
def test_a_case_draws_as_many_rows_as_it_says(case):
    rng = np.random.default_rng(0)
    batches = case.draw(case.truth, rng)
    n = sum(len(y) for _, y, _ in batches)
    assert abs(n - case.n_rows) <= (0.1 * case.n_rows if "replicates" in case.name else 0)
    new = case.ask(50, rng)
    assert new.shape[1] == batches[0][0].shape[1]
    y = case.truth.observe(new, rng)
    assert y.shape == (len(new),)
    assert np.all(case.truth.deviation(new) > 0)


def test_noise_has_the_deviation_that_a_case_states():
    rng = np.random.default_rng(0)
    X = rng.random((200_000, 3))
    for truth in (cases.NORMAL, cases.RISING, cases.SWITCHED, cases.PURE_NOISE):
        z = (truth.observe(X, rng) - truth.mean(X)) / truth.deviation(X)
        assert z.std() == pytest.approx(1.0, rel=0.01)
        assert abs(z.mean()) < 0.01
    rounded = cases.DISCRETE.observe(X, rng)
    assert set(np.unique(rounded % cases.GRID)) == {0.0}
    assert abs(np.mean(rounded - cases.DISCRETE.mean(X))) < 0.01


def test_the_right_intervals_have_the_right_coverage():
    rng = np.random.default_rng(0)
    X = rng.random((2_000, 3))
    mean, deviation = cases.RISING.mean(X), cases.RISING.deviation(X)
    half = {50: 0.6745, 90: 1.6449, 99: 2.5758}
    ends = {c: np.stack([mean - z * deviation, mean + z * deviation], 1) for c, z in half.items()}
    found = calibration.coverage(cases.RISING, X, ends, 20_000, rng)
    groups = calibration.by_noise(cases.RISING, X, ends, 20_000, rng)
    assert len(groups) == calibration.FIFTHS
    assert [part["deviation"] for part in groups] == sorted(part["deviation"] for part in groups)
    for part in (found, *groups):
        for c in calibration.LEVELS:
            assert 100 * part[str(c)] == pytest.approx(c, abs=2.0)
    assert calibration.by_noise(cases.NORMAL, X, ends, 100, rng) == []


def test_a_stored_cell_is_not_measured_again(folder, monkeypatch):
    case = cases.CASES[0]
    fake_cell(case.name, "B", new=LOW)
    assert calibration.run_cell(case, "B")["seeds"][0]["new"] == LOW

    def fail(*_):
        raise ValueError("X must\n  lie inside")

    monkeypatch.setattr(calibration, "measure", fail)
    cell = calibration.run_cell(case, "B", again=True)
    assert (cell["status"], cell["note"]) == ("failed", "ValueError: X must lie inside")
    assert calibration.read(case.name, "B") == cell
    assert "failed: ValueError" in calibration.line_of(case, cell)


def test_the_command_measures_the_chosen_cases(folder, monkeypatch, capsys):
    monkeypatch.setattr(calibration_page, "main", lambda: None)
    monkeypatch.setattr(calibration, "seeds_of", lambda case: range(2))
    command.main(["calibration", "--cases", "normal-10", "--estimators", "B"])
    assert "normal-10" in capsys.readouterr().out
    cell = calibration.read("normal-10", "B")
    assert cell["status"] == "ok"
    assert len(cell["seeds"]) == 2
    assert calibration.read("normal-10", "F") is None


def test_what_is_off_is_marked_and_listed_under_its_reason(folder, capsys):
    pytest.importorskip("matplotlib")
    fake_cell("normal-10", "B", new=LOW)
    fake_cell("normal-10", "F")
    fake_cell("normal-30", "F", training=LOW, latent_ms=9.0)
    fake_cell("outside-2", "B", new={"50": 1.0, "90": 1.0, "99": 1.0})
    fake_cell("stream-1", "B", status="failed", note="ValueError: X of added rows")
    groups = [{"deviation": 0.1, **LOW}, {"deviation": 0.4, **RIGHT}]
    fake_cell("heteroscedastic-2000", "B", by_noise=groups)
    reasons = "## normal-1? B, normal-30 *\n\nToo few rows.\n\n## twins-* F\n\nCopies.\n"
    (folder / "reading.md").write_text("Not shown.\n\n" + reasons)
    calibration_page.main(folder)
    text = (folder / "calibration.md").read_text()
    rows = "| 10 rows | **20.0** | 90.0 | 99.0 | 50.0 | 90.0 | 99.0 |"
    assert rows in text
    assert "| **3.00** |" in text
    assert (
        "| y = 3 x on [0, 1], asked at x = 2, 500 rows | 100.0 | 100.0 | 100.0 | not run |" in text
    )
    fails = text[text.index("## Where it fails") :]
    explained, unexplained = fails.split("No reason is written down")
    assert "Too few rows." in explained
    assert "| normal-10 | B | at new inputs: 20.0 for 50 % |" in explained
    assert (
        "| normal-30 | F | at training inputs: 20.0 for 50 %; deviation of the function"
        in explained
    )
    assert "| stream-1 | B | raises ValueError: X of added rows |" in unexplained
    assert "where the noise is 0.10: 20.0 for 50 %" in unexplained
    assert "outside-2" not in fails
    assert text.count("asked at x = 2, 500 rows |") == 2  # new inputs and deviation
    assert "Copies." not in text
    assert "Not shown." not in text
    assert "nothing fails any more for twins-* F" in capsys.readouterr().out
    assert (folder / "figures" / "calibration.svg").read_text().startswith("<?xml")


def test_the_page_needs_no_cells(folder):
    pytest.importorskip("matplotlib")
    calibration_page.main(folder)
    text = (folder / "calibration.md").read_text()
    assert "Nothing is marked." in text
    assert "not run" in text
