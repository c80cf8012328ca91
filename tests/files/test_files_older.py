"""Files of an older format version load, and predict what they did."""

from pathlib import Path

import numpy as np
import pytest

import triegp
from tolerances import VALUE

FOLDER = Path(__file__).parent / "version_1"  # written before `tolerance` was `tol`, `start` `init`
SECOND = Path(__file__).parent / "version_2"  # before calibration was a stage of its own


@pytest.mark.parametrize(
    ("name", "key", "renamed"),
    [("mixture", "a", {"tol": 1e-2}), ("forest", "b", {"init": "random"})],
)
def test_a_file_of_version_1(name, key, renamed, tmp_path):
    stored = np.load(FOLDER / "predictions.npz")
    model = triegp.load(FOLDER / name)
    assert renamed.items() <= model.get_params().items()
    found = model.predict(stored["X"], return_std=True)
    np.testing.assert_allclose(found, stored[key], **VALUE)  # by another numpy, perhaps
    assert hasattr(model, "n_iter_") == (name == "forest")  # the mixture's was not stored
    model.save(tmp_path / name)
    again = triegp.load(tmp_path / name)
    np.testing.assert_array_equal(again.predict(stored["X"], return_std=True), found)


@pytest.mark.parametrize("name", ["mixture", "forest"])
def test_a_file_of_version_2(name, tmp_path):
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

    model = triegp.load(SECOND / name)
    assert model.weights == "frequency"
    np.testing.assert_allclose(answers(model), stored[name], **VALUE)
    np.testing.assert_allclose(model.log_marginal_likelihood_, stored[f"{name}_lml"], **VALUE)
    assert np.isfinite(model.loo_predict()[0]).sum() == np.isfinite(model.loo_predict()[1]).sum()
    model.save(tmp_path / name)
    again = triegp.load(tmp_path / name)
    np.testing.assert_array_equal(answers(again), answers(model))
    np.testing.assert_array_equal(again.loo_predict(), model.loo_predict())
    more = [m.partial_fit(new[:2], [0.0, 1.0]).predict(new) for m in (model, again)]
    np.testing.assert_array_equal(*more)
