"""A triegp estimator as a probabilistic regressor of skpro."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import clone
from skpro.regression.base import BaseProbaRegressor
from skpro.utils.sklearn import prep_skl_df

from triegp.estimators.mixture_regressor import BinaryTreeGPRegressor
from triegp.skpro.distribution import TrieDistribution


class TrieProbaRegressor(BaseProbaRegressor):  # type: ignore[misc]
    """A `BinaryTreeGPRegressor` or `TrieGPRegressor` with skpro's interface.

    `predict_proba` returns the whole predictive distribution, not a Gaussian with its two moments.
    Intervals, quantiles and skpro's metrics are computed from it.

    Parameters
    ----------
    estimator : estimator
        Of triegp, not fitted. It is cloned.

    Attributes
    ----------
    estimator_ : estimator
        The fitted clone.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from triegp import BinaryTreeGPRegressor
    >>> from triegp.skpro import TrieProbaRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame(rng.random((300, 2)), columns=["a", "b"])
    >>> y = pd.DataFrame({"y": np.sin(6 * X["a"]) + 0.1 * rng.standard_normal(300)})
    >>> model = TrieProbaRegressor(BinaryTreeGPRegressor(n_members=2, random_state=0)).fit(X, y)
    >>> found = model.predict_proba(X.iloc[:5])
    >>> found.shape, found.cdf(found.ppf(0.2)).round(6)["y"].unique()
    ((5, 1), array([0.2]))

    Notes
    -----
    X and y may be all that skpro reads; several columns of y are several targets. `update` inserts
    rows, as `partial_fit`. Rows of a prediction are independent in skpro; joint samples are those
    of `estimator_.sample_y`.
    """

    _tags: ClassVar[dict[str, Any]] = {
        "capability:multioutput": True,
        "capability:missing": True,
        "capability:update": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any) -> TrieProbaRegressor:
        if not hasattr(self.estimator, "predict_distribution"):
            raise ValueError(
                f"estimator must be one of triegp, got {type(self.estimator).__name__}"
            )
        self._y_columns = y.columns
        self.estimator_ = clone(self.estimator).fit(prep_skl_df(X), self._targets(y))
        return self

    def _update(self, X: Any, y: Any) -> TrieProbaRegressor:
        self.estimator_.partial_fit(prep_skl_df(X), self._targets(y))
        return self

    def _predict(self, X: Any) -> Any:
        return self._frame(self.estimator_.predict(prep_skl_df(X)), X)

    def _predict_var(self, X: Any) -> Any:
        _, std = self.estimator_.predict(prep_skl_df(X), return_std=True)
        return self._frame(np.square(std), X)

    def _predict_proba(self, X: Any) -> TrieDistribution:
        found = self.estimator_.predict_distribution(prep_skl_df(X))
        parts = found if isinstance(found, list) else [found]
        return TrieDistribution(parts, index=X.index, columns=self._y_columns)

    def _targets(self, y: Any) -> Any:
        """Targets as an array: (n,) if there is one."""
        values = y.to_numpy()
        return values[:, 0] if values.shape[1] == 1 else values

    def _frame(self, values: Any, X: Any) -> Any:
        shape = (X.shape[0], len(self._y_columns))
        return pd.DataFrame(values.reshape(shape), index=X.index, columns=self._y_columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters by which skpro's checks make instances.

        Parameters
        ----------
        parameter_set : str, default="default"
            There is one set.
        """
        small: dict[str, Any] = {"n_members": 2, "n_candidates": 4, "random_state": 0}
        return [
            {"estimator": BinaryTreeGPRegressor(**small)},
            {"estimator": BinaryTreeGPRegressor(**small, target_transform="yeo-johnson")},
        ]
