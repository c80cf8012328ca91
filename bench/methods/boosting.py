"""Boosted trees: LightGBM with one variance or with quantiles, NGBoost, CatBoost."""

import warnings

import numpy as np

from bench.distributions import LEVELS, Quantiles, gaussian
from bench.methods.task import Method

ROUNDS, PATIENCE = 3000, 50


def boost_lightgbm(task, **objective):
    import lightgbm

    model = lightgbm.LGBMRegressor(
        learning_rate=0.05,
        num_leaves=63,
        n_estimators=ROUNDS,
        random_state=task.seed,
        verbosity=-1,
        **objective,
    )
    with warnings.catch_warnings():  # newer versions rename eval_set
        warnings.simplefilter("ignore")
        model.fit(
            task.X,
            task.y,
            eval_set=[(task.X_valid, task.y_valid)],
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
        )
    return model


def predict_lightgbm(model, X):
    with warnings.catch_warnings():  # version 4.6 warns though fitted without names
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return model.predict(X)


def fit_lightgbm(task):
    model = boost_lightgbm(task)
    sd = np.sqrt(np.mean((predict_lightgbm(model, task.X_valid) - task.y_valid) ** 2))
    return lambda X: gaussian(predict_lightgbm(model, X), sd)


def fit_lightgbm_quantiles(task):
    models = [boost_lightgbm(task, objective="quantile", alpha=level) for level in QUANTILES]

    def predict(X):
        values = np.stack([predict_lightgbm(model, X) for model in models], axis=1)
        return Quantiles(np.array(QUANTILES), values, values[:, QUANTILES.index(0.5)])

    return predict


QUANTILES = (0.005, 0.05, 0.25, 0.5, 0.75, 0.95, 0.995)
assert set(QUANTILES) <= set(LEVELS)


def fit_ngboost(task):
    from ngboost import NGBRegressor

    model = NGBRegressor(
        n_estimators=500, learning_rate=0.05, random_state=task.seed, verbose=False
    )
    model.fit(
        task.X, task.y, X_val=task.X_valid, Y_val=task.y_valid, early_stopping_rounds=PATIENCE
    )

    def predict(X):
        found = model.pred_dist(X, max_iter=model.best_val_loss_itr)
        return gaussian(found.loc, found.scale)

    return predict


def fit_catboost(task, **parameters):
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty",
        iterations=ROUNDS,
        random_seed=task.seed,
        verbose=False,
        allow_writing_files=False,
        early_stopping_rounds=PATIENCE,
        **parameters,
    )
    model.fit(task.X, task.y, eval_set=(task.X_valid, task.y_valid))

    def predict(X):
        mean, var = model.predict(X).T
        return gaussian(mean, np.sqrt(var))

    return predict


METHODS = (
    Method(
        "lightgbm",
        ("lightgbm",),
        fit_lightgbm,
        "learning_rate 0.05, 63 leaves, at most 3,000 rounds, early stopping after 50; one "
        "variance, the mean squared error of the validation part",
    ),
    Method(
        "lightgbm-quantiles",
        ("lightgbm",),
        fit_lightgbm_quantiles,
        "the same, one model for each of seven quantiles; the median serves as mean",
    ),
    Method(
        "ngboost",
        ("ngboost",),
        fit_ngboost,
        "Normal, at most 500 rounds of learning_rate 0.05, early stopping after 50",
    ),
    Method(
        "catboost",
        ("catboost",),
        fit_catboost,
        "RMSEWithUncertainty, at most 3,000 rounds, early stopping after 50",
    ),
)
