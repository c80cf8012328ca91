"""Files of an older format version load, and predict what they did."""

from pathlib import Path

import numpy as np
import pytest

import triegp
from tolerances import VALUE

FOLDER = Path(__file__).parent / "version_1"  # written before `tolerance` was `tol`, `start` `init`


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
