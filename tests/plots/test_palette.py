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

NAMES = [own.name for own in fields(plots.Palette)]
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
    yield plots.PredictiveBandDisplay.from_estimator(line, n_samples=2)
    yield plots.CalibrationDisplay.from_loo(mixture)
    yield plots.PitDisplay.from_loo(mixture)
    yield plots.CoverageByWidthDisplay.from_loo(mixture, n_bins=3)
    yield plots.CoverageByFeatureDisplay.from_loo(mixture, 0, n_bins=3, coverage=0.5)
    yield plots.ResidualDisplay.from_loo(mixture)
    yield plots.PartialEffectDisplay.from_estimator(mixture, None, 0, n_draws=3)
    yield plots.PartialEffectDisplay.from_estimator(model, frame, "town", n_draws=3)
    yield plots.PartialEffectDisplay.from_estimator(
        model, frame, ["day", "town"], n_draws=3, n_rows=5, n_grid=3, centred=True
    )
    yield plots.ImportanceDisplay.from_estimator(forest)
    yield plots.ImportanceDisplay.from_estimator(forest, kind="heatmap")
    yield plots.WeightsDisplay.from_estimator(mixture)
    yield plots.WeightsDisplay.from_estimator(mixture, tree=1)
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
    own = dict.fromkeys(names, "#ff00ff")
    with mpl.rc_context({**own, "axes.prop_cycle": mpl.cycler(color=["#ff00ff"])}):
        yield


@pytest.mark.usefixtures("loud")
def test_every_colour_of_every_display_is_the_palettes(mixture, forest, line, table):
    before = dict(mpl.rcParams)
    with plots.use_palette(SENTINELS):
        displays = list(draw_all(mixture, forest, line, table))
    assert dict(mpl.rcParams) == before
    assert {type(one).__name__ for one in displays} >= {
        name for name in plots.__all__ if name.endswith("Display") and name != "TreeDisplay"
    }
    allowed = {to_hex(getattr(SENTINELS, name)) for name in NAMES}
    for display in displays:
        assert colours(display.figure_) <= allowed, type(display).__name__


@pytest.mark.usefixtures("loud")
def test_colours_of_a_tree_are_the_palettes():
    with plots.use_palette(SENTINELS):
        display = plots.TreeDisplay.from_posterior(four_rows())
    assert colours(display.figure_) <= {getattr(SENTINELS, name) for name in NAMES}


@pytest.mark.usefixtures("loud")
def test_hexagons_have_the_palettes_colours():
    rng = np.random.default_rng(0)
    var = rng.random((1, 6_000))
    normal = PredictiveDistribution(np.ones(1), np.zeros((1, 6_000)), var)
    with plots.use_palette(SENTINELS):
        display = plots.ResidualDisplay.from_predictions(rng.standard_normal(6_000), normal)
    assert display.ax_.collections
    assert colours(display.figure_) <= {getattr(SENTINELS, name) for name in NAMES}


def colours(figure):
    """Colours in an SVG file of the figure, backgrounds left out."""
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "x"}):
        figure.savefig(file, format="svg", transparent=True)
    found = set(re.findall(r"#[0-9a-fA-F]{6}\b", file.getvalue()))
    assert "<image" not in file.getvalue()
    assert found
    return found


def test_without_matplotlib_the_error_names_the_extra():
    code = (
        "import sys, importlib.util as u\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'matplotlib' else found(name, *rest)\n"
        "import triegp.plots\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "triegp.plots needs matplotlib: pip install 'triegp[plots]'" in ended.stderr


def test_importing_plots_does_not_load_matplotlib():
    code = "import sys, triegp.plots; print('matplotlib' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout == "False\n", ended.stderr


def test_pictures_of_the_page_are_there():
    page = Path(__file__).parents[2] / "docs" / "plots.md"
    pictures = re.findall(r"\]\((figures/[^)]*)\)", page.read_text())
    assert len(pictures) == 6
    script = (page.parents[1] / "bench" / "plot_pictures.py").read_text()
    for picture in pictures:
        assert (page.parent / picture).is_file()
        assert f'"{Path(picture).stem}"' in script
