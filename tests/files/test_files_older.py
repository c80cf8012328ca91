"""Files of an older format version load and predict what they did, or say what to do."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import triegp
from model_files import assert_same, fit_heteroscedastic, fit_repeats, refused, write_parts
from tolerances import VALUE
from triegp.files import mixture
from triegp.files.container import read_file

FOLDER = Path(__file__).parent / "version_1"  # written before `tolerance` was `tol`
SECOND = Path(__file__).parent / "version_2"  # before calibration was a stage of its own
SIXTH = Path(__file__).parent / "version_6"  # before intervals: it has the keys of every member


def test_a_file_of_version_1(tmp_path):
    stored = np.load(FOLDER / "predictions.npz")
    model = triegp.load(FOLDER / "mixture")
    assert model.tol == 1e-2
    found = model.predict(stored["X"], return_std=True)
    np.testing.assert_allclose(found, stored["a"], **VALUE)  # by another numpy, perhaps
    assert not hasattr(model, "n_iter_")  # it was not stored
    model.save(tmp_path / "m")
    again = triegp.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(stored["X"], return_std=True), found)


def test_a_file_of_version_2(tmp_path):
    """Weighted rows, known noise, calibrated; half of the rows to predict are training rows."""
    stored = np.load(SECOND / "predictions.npz")
    new = stored["X"]

    def answers(model):
        return np.column_stack(
            [
                *model.predict(new, return_std=True),
                *model.predict(new, return_std=True, latent=True),
                model.predict_quantiles(new, (0.01, 0.5, 0.9)),
                model.predict(new, return_cov=True)[1],
            ]
        )

    model = triegp.load(SECOND / "mixture")
    assert model.weights == "frequency"
    np.testing.assert_allclose(answers(model), stored["mixture"], **VALUE)
    np.testing.assert_allclose(model.log_marginal_likelihood_, stored["mixture_lml"], **VALUE)
    assert np.isfinite(model.loo_predict()[0]).sum() == np.isfinite(model.loo_predict()[1]).sum()
    model.save(tmp_path / "m")
    again = triegp.load(tmp_path / "m")
    np.testing.assert_array_equal(answers(again), answers(model))
    np.testing.assert_array_equal(again.loo_predict(), model.loo_predict())
    more = [m.partial_fit(new[:2], [0.0, 1.0]).predict(new) for m in (model, again)]
    np.testing.assert_array_equal(*more)


def test_fewer_observations_than_rows_of_the_models(tmp_path):
    header, arrays = read_file(SECOND / "mixture")
    assert "plan" not in header
    arrays["rows.index"] = arrays["rows.index"][:1]
    refused(write_parts(tmp_path / "m", header, arrays), "models must have at most 1 rows")


@pytest.mark.filterwarnings("ignore:.*outside the training box")
def test_tails_of_version_4_are_symmetric(tmp_path):
    model = fit_heteroscedastic()
    (fitted,) = model._stream.fitted
    (stage,) = fitted.stages
    plain = replace(stage, tails=replace(stage.tails, offset=np.zeros(stage.tails.weight.size)))
    model._stream = replace(model._stream, fitted=(replace(fitted, stages=(plain,)),))
    model.save(tmp_path / "m")
    header, arrays = read_file(tmp_path / "m")
    (name,) = [name for name in arrays if name.endswith(".tails")]
    old = write_parts(tmp_path / "o", {**header, "version": 4}, {**arrays, name: arrays[name][:2]})
    assert_same(triegp.load(old), model)


@pytest.mark.filterwarnings("ignore:.*outside the training box")
def test_a_file_of_version_6(tmp_path, monkeypatch):
    """Known noise, rows added by partial_fit; it is written again as intervals."""
    stored = np.load(SIXTH / "predictions.npz")
    assert read_file(SIXTH / "mixture")[0]["version"] == 6

    def answers(model):
        return [
            np.array(model.predict(stored["X"], return_std=True)),
            np.array(model.loo_predict()),
            model.predict_quantiles(stored["X"], (0.01, 0.5, 0.9)),
        ]

    model = triegp.load(SIXTH / "mixture")
    for found, name in zip(answers(model), ("mean_std", "loo", "quantiles"), strict=True):
        np.testing.assert_allclose(found, stored[name], **VALUE)  # by another numpy, perhaps
    monkeypatch.setattr(mixture, "FEW_ROWS", 0)
    model.save(tmp_path / "m")
    assert "ensemble.0.n_intervals" in read_file(tmp_path / "m")[1]
    for one, two in zip(answers(model), answers(triegp.load(tmp_path / "m")), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.filterwarnings("ignore:.*outside the training box")
def test_repeats_of_version_6(tmp_path):
    """The observations at each input were one array, and rows had indices of 64 bits."""
    model = fit_repeats()
    model.save(tmp_path / "m")
    header, arrays = read_file(tmp_path / "m")
    names = [f"ensemble.0.stage.0.seen.{part}" for part in ("mean", "weight", "count", "spread")]
    old = {
        **{name: array for name, array in arrays.items() if name not in names},
        "ensemble.0.stage.0.seen": np.stack([arrays[name] for name in names]),
        "rows.index": arrays["rows.index"].astype(np.int64),
    }
    loaded = triegp.load(write_parts(tmp_path / "o", {**header, "version": 6}, old))
    assert_same(loaded, model)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_forest_of_before_the_smooth_part_is_refused(version, tmp_path):
    header = {"version": version, "estimator": "ForestGPRegressor", "parameters": {}}
    path = write_parts(tmp_path / "m", header, {})
    refused(path, "holds a ForestGPRegressor.* fit a TrieGPRegressor .* and save it again")
