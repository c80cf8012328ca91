"""Methods on DataFrames: categories, dates and gaps as each library takes them itself.

Settings are those of the methods of the same name on arrays. The boosted trees take no dates: they
are given days since 1970.
"""

from dataclasses import replace

import numpy as np

from bench import frames_data as data
from bench.distributions import gaussian
from bench.methods import boosting
from bench.methods.task import Method

MISSING = "missing"  # label that CatBoost is given for a category that is missing


def days(frame):
    """The frame with dates as days since 1970, missing ones as NaN."""
    dates = frame.select_dtypes("datetime")
    start, day = np.datetime64(0, "s"), np.timedelta64(86_400, "s")
    return frame.assign(**{name: (dates[name].to_numpy() - start) / day for name in dates})


def categorical(frame):
    """Names of the columns that hold categories: neither numbers nor dates."""
    return list(frame.select_dtypes(exclude=["number", "bool", "datetime"]).columns)


def as_categories(frame, like):
    """Categories as category dtype, with the labels that the frame `like` has; others missing."""
    import pandas as pd

    columns = {}
    for name in categorical(like):
        labels = pd.Index(like[name].dropna().unique().astype(object))
        codes = labels.get_indexer(frame[name].astype(object))
        columns[name] = pd.Categorical.from_codes(codes, labels)
    return days(frame).assign(**columns)


def as_labels(frame):
    """Categories as strings, a missing one as a label of its own."""
    names = categorical(frame)
    return days(frame).assign(
        **{name: frame[name].astype(object).fillna(MISSING).astype(str) for name in names}
    )


def prepared(fit, prepare):
    """A fit on arrays or frames, of frames that are prepared."""

    def fit_prepared(task):
        def convert(frame):
            return prepare(frame, task.X)

        predict = fit(replace(task, X=convert(task.X), X_valid=convert(task.X_valid)))
        return lambda frame: predict(convert(frame))

    return fit_prepared


def fit_catboost(task):
    return boosting.fit_catboost(task, cat_features=categorical(task.X))


def fit_estimator(name):
    """One of triegp's estimators with its defaults, on the frame as it is."""

    def fit(task):
        import triegp

        model = getattr(triegp, name)(random_state=task.seed)
        model.fit(task.X, task.y)
        return lambda X: model.predict_distribution(X)

    return fit


def fit_known_model(task):
    """Posterior of the synthetic tables' effects and slopes, given everything else.

    Per category with rows z = (1, tilt): precision diag(1 / EFFECT_SD^2, 1 / SLOPE_SD^2) +
    sum z z' / NOISE_SD^2. No method that has to learn the rest can expect a lower NLL.
    """
    import pandas as pd

    known = pd.Index(task.X["shop"].unique())
    n = len(known) + 1  # the last for labels that are new

    def sums(values, code):
        return np.bincount(code, values, minlength=n) / data.NOISE_SD**2

    code, t = known.get_indexer(task.X["shop"]), data.tilt(task.X)
    rest = task.y - data.smooth(task.X)
    p11 = sums(np.ones(len(t)), code) + 1 / data.EFFECT_SD**2
    p12, p22 = sums(t, code), sums(t**2, code) + 1 / data.SLOPE_SD**2
    h1, h2 = sums(rest, code), sums(rest * t, code)
    determinant = p11 * p22 - p12**2
    effect, slope = (p22 * h1 - p12 * h2) / determinant, (p11 * h2 - p12 * h1) / determinant

    def predict(frame):
        c, t = known.get_indexer(frame["shop"]), data.tilt(frame)  # -1, the last, if new
        var = (p22[c] - 2 * p12[c] * t + p11[c] * t**2) / determinant[c] + data.NOISE_SD**2
        return gaussian(data.smooth(frame) + effect[c] + slope[c] * t, np.sqrt(var))

    return predict


_METHODS = (
    Method("triegp", (), fit_estimator("BinaryTreeGPRegressor"), "`BinaryTreeGPRegressor()`"),
    Method("triegp-flagship", (), fit_estimator("TrieGPRegressor"), "`TrieGPRegressor()`"),
    Method(
        "lightgbm",
        ("lightgbm",),
        prepared(boosting.fit_lightgbm, as_categories),
        "category dtype and NaN as they are; learning_rate 0.05, 63 leaves, at most 3,000 rounds, "
        "early stopping after 50; one variance, the mean squared error of the validation part",
    ),
    Method(
        "lightgbm-quantiles",
        ("lightgbm",),
        prepared(boosting.fit_lightgbm_quantiles, as_categories),
        "the same, one model for each of seven quantiles; the median serves as mean",
    ),
    Method(
        "catboost",
        ("catboost",),
        prepared(fit_catboost, lambda frame, _: as_labels(frame)),
        "cat_features, NaN as it is; RMSEWithUncertainty, at most 3,000 rounds, early stopping "
        "after 50",
    ),
    Method(
        "known-model",
        (),
        fit_known_model,
        "synthetic tables only: knows all of the model but the effects and slopes of the labels",
    ),
)
METHODS = {method.name: method for method in _METHODS}
