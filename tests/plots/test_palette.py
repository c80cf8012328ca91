import io
import re
import subprocess
import sys
import threading
from dataclasses import fields, replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import is_color_like, to_hex

from plot_problems import four_rows
from triegp import PredictiveDistribution, plots
from triegp.plots.palette import current_palette

NAMES = [field.name for field in fields(plots.Palette)]
SENTINELS = plots.Palette(*(f"#0101{k:02x}" for k in range(len(NAMES))))


def test_palette_is_swapped_inside_a_block_only():
    other = replace(plots.LIGHT, accent="#123456")
    with plots.use_palette(plots.DARK), plots.use_palette(other):
        assert current_palette() is other
    assert current_palette() == plots.LIGHT


def test_palette_of_another_thread_is_not_swapped():
    found = []
    with plots.use_palette(plots.DARK):
        thread = threading.Thread(target=lambda: found.append(current_palette()))
        thread.start()
        thread.join()
    assert found == [plots.LIGHT]


def test_palette_follows_the_style():
    with plt.style.context("dark_background"):
        assert current_palette() is plots.DARK
    assert current_palette() is plots.LIGHT


def test_use_palette_wants_a_palette():
    with (
        pytest.raises(TypeError, match="palette must be a Palette, got dict"),
        plots.use_palette({"ink": "red"}),
    ):
        pass


def draw_all(mixture, forest, line, table):
    model, frame, _ = table
    rng = np.random.default_rng(0)
    normal = PredictiveDistribution(np.ones(1), np.zeros((1, 6_000)), rng.random((1, 6_000)))
    quick = {"n_draws": 3, "n_rows": 5, "n_grid": 3}
    yield plots.PredictiveBandDisplay.from_estimator(line, n_samples=2)
    yield plots.CalibrationDisplay.from_loo(mixture)
    yield plots.PitDisplay.from_loo(mixture)
    yield plots.CoverageByWidthDisplay.from_loo(mixture, n_bins=3)
    yield plots.CoverageByFeatureDisplay.from_loo(mixture, 0, n_bins=3, coverage=0.5)
    yield plots.ResidualDisplay.from_loo(mixture)
    hexagons = plots.ResidualDisplay.from_predictions(rng.standard_normal(6_000), normal)
    assert hexagons.ax_.collections
    yield hexagons
    yield plots.PartialEffectDisplay.from_estimator(mixture, None, 0, n_draws=3)
    yield plots.PartialEffectDisplay.from_estimator(model, frame, "town", n_draws=3)
    both = ["day", "town"]
    yield plots.PartialEffectDisplay.from_estimator(model, frame, both, centred=True, **quick)
    yield plots.ImportanceDisplay.from_estimator(forest)
    yield plots.ImportanceDisplay.from_estimator(forest, kind="heatmap")
    yield plots.WeightsDisplay.from_estimator(mixture)
    yield plots.WeightsDisplay.from_estimator(mixture, tree=1)
    yield plots.TreeDisplay.from_posterior(four_rows())
    yield plots.TrainingCurveDisplay.from_estimator(mixture)
    yield plots.TrainingCurveDisplay.from_estimator(forest)


@pytest.fixture
def loud():
    """Colours of matplotlib that are found in a file if a display does not set its own."""
    names = [
        name
        for name, value in mpl.rcParams.items()
        if name.endswith("color") and is_color_like(value) and not name.endswith("facecolor")
    ]
    colors = dict.fromkeys(names, "#ff00ff")
    with mpl.rc_context({**colors, "axes.prop_cycle": mpl.cycler(color=["#ff00ff"])}):
        yield


@pytest.mark.usefixtures("loud")
def test_every_colour_of_every_display_is_the_palettes(mixture, forest, line, table):
    before = dict(mpl.rcParams)
    with plots.use_palette(SENTINELS):
        displays = list(draw_all(mixture, forest, line, table))
    assert dict(mpl.rcParams) == before
    kinds = {name for name in plots.__all__ if name.endswith("Display")}
    assert {type(display).__name__ for display in displays} == kinds
    allowed = {to_hex(getattr(SENTINELS, name)) for name in NAMES}
    for display in displays:
        assert colours(display.figure_) <= allowed, type(display).__name__


def colours(figure):
    """Colours in an SVG file of the figure, backgrounds left out."""
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "x"}):
        figure.savefig(file, format="svg", transparent=True)
    found = set(re.findall(r"#[0-9a-fA-F]{6}\b", file.getvalue()))
    assert "<image" not in file.getvalue()
    assert found
    return found


WITHOUT = """import sys, importlib.util as u
found = u.find_spec
u.find_spec = lambda name, *rest: None if name == 'matplotlib' else found(name, *rest)
import triegp.plots
"""


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (WITHOUT, "ImportError: triegp.plots needs matplotlib: pip install 'triegp[plots]'"),
        ("import sys, triegp.plots; print('matplotlib' in sys.modules)", "False"),
    ],
    ids=["without matplotlib the error names the extra", "importing does not load matplotlib"],
)
def test_import(code, shown):
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.stdout + ended.stderr).splitlines()[-1] == shown


def test_pictures_of_the_page_are_there():
    page = Path(__file__).parents[2] / "docs" / "plots.md"
    pictures = re.findall(r"\]\((figures/[^)]*)\)", page.read_text())
    assert len(pictures) == 6
    script = (page.parents[1] / "bench" / "plot_pictures.py").read_text()
    for picture in pictures:
        assert (page.parent / picture).is_file()
        assert f'"{Path(picture).stem}"' in script
