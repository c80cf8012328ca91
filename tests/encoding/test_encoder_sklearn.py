"""The encoder in scikit-learn: estimator checks, clones, pipelines, data frames."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from encoder_problems import fitted
from triegp.encoding.encoder import BitEncoder

# ---------------------------------------------------------------- scikit-learn


@parametrize_with_checks([BitEncoder(), BitEncoder(scaling="ecdf", shift="random", random_state=0)])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_clone_and_parameters():
    encoder = BitEncoder(scaling="ecdf", precision=[3, 4], shift=[0.0, 0.5], outside="error")
    copy = clone(encoder)
    assert copy.get_params() == encoder.get_params()
    assert sorted(copy.get_params()) == [
        "categorical_features",
        "margin",
        "outside",
        "precision",
        "random_state",
        "scaling",
        "shift",
    ]
    with pytest.raises(TypeError, match="positional"):
        BitEncoder("ecdf")
    assert not hasattr(copy, "precision_")


def test_in_a_pipeline_with_weights():
    X = np.random.default_rng(0).normal(size=(30, 2))
    pipeline = make_pipeline(StandardScaler(), BitEncoder(precision=5))
    codes = pipeline.fit_transform(X, bitencoder__sample_weight=np.arange(30) % 2)
    assert codes.shape == (30, 2)
    assert codes.dtype == np.uint8
    assert pipeline.get_feature_names_out(["a", "b"]).tolist() == ["a", "b"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(library):
    frames = pytest.importorskip(library)
    numbers = {"age": [30.0, 40.5, 51.0], "n": [1, 5, 9], "flag": [True, False, True]}
    frame = frames.DataFrame(numbers)
    X = np.array(list(numbers.values()), dtype=float).T
    encoder = BitEncoder(precision=4, outside="error").fit(frame)
    assert encoder.feature_names_in_.tolist() == ["age", "n", "flag"]
    assert encoder.get_feature_names_out().tolist() == ["age", "n", "flag"]
    expected = fitted(X, precision=4)
    np.testing.assert_array_equal(encoder.transform(frame), expected.transform(X))
    np.testing.assert_array_equal(encoder.encode(frame).packed, expected.encode(X).packed)

    framed = encoder.set_output(transform=library).transform(frame)
    assert isinstance(framed, frames.DataFrame)
    assert list(framed.columns) == ["age", "n", "flag"]
    np.testing.assert_array_equal(framed, expected.transform(X))
    np.testing.assert_array_equal(encoder.encode(frame).packed, expected.encode(X).packed)

    with pytest.raises(
        ValueError,
        match=r"X must lie in the training box, got 77.0 in column 'n' \(1\) at row 2, "
        r"expected 1.0 to 9.0",
    ):
        encoder.transform(frames.DataFrame(numbers | {"n": [1, 5, 77]}))
    missing = frames.DataFrame(numbers | {"age": [30.0, 40.5, None]})
    with pytest.raises(ValueError, match=r"a missing value in column 'age' \(0\) at row 2"):
        encoder.transform(missing)
    text = frames.DataFrame(numbers | {"n": ["1", "five", "9"]})
    with pytest.raises(ValueError, match=r"numbers in column 'n'"):
        encoder.transform(text)
    again = encoder.transform(frame[["n", "age", "flag"]])  # columns are found by name
    np.testing.assert_array_equal(again, encoder.transform(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        encoder.transform(frame[["n", "age"]])
