"""Writing a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from triegp.checks import whole_number
from triegp.files.whole import write_whole
from triegp.report.advise import advise
from triegp.report.facts import gather
from triegp.report.page import write_page


def write_report(
    model: Any,
    path: str | Path,
    X: Any = None,
    y: Any = None,
    *,
    title: str | None = None,
    targets: Sequence[str] | None = None,
    n_effects: int = 6,
    n_rows: int = 10,
) -> Path:
    """Write one HTML file that explains a fitted model to a person.

    Parameters
    ----------
    model : estimator
        A fitted TrieGPRegressor or BinaryTreeGPRegressor.
    path : str or Path
        Where to write; an existing file is replaced in one step.
    X, y : array-like (m, n_features), (m,) or (m, n_targets), optional
        A test set, which the model has not seen; both or none. Without it, all scores are from
        leave-one-out.
    title : str, optional
        Heading of the report; by default it names the target.
    targets : sequence of str, optional
        Names of the targets; by default "y", or "target 0" and so on.
    n_effects : int, default=6
        Number of features whose effects are shown.
    n_rows : int, default=10
        Number of rows in each table of rows.

    Returns
    -------
    Path
        The file. It holds all it needs, and loads nothing.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from triegp import BinaryTreeGPRegressor
    >>> from triegp.report import write_report
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((300, 2))
    >>> y = X[:, 0] + 0.1 * rng.standard_normal(300)
    >>> model = BinaryTreeGPRegressor(n_members=2, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(model, f"{folder}/report.html")
    ...     "<h1>" in path.read_text(encoding="utf-8")
    True

    Notes
    -----
    O(K n) for leave-one-out of n rows with K components, and about 20,000 predictions for effects,
    whatever n. Equal models give equal files, but for the time of the fit. A report has sections
    for the first eight targets; such a file is smaller than 2 MB.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("reports need matplotlib: pip install 'triegp[plots]'") from error
    check_is_fitted(model)
    if not (hasattr(model, "loo_distribution") and hasattr(model, "importances_")):
        raise TypeError(
            "model must be a TrieGPRegressor or a BinaryTreeGPRegressor, got "
            f"{type(model).__name__}"
        )
    if (X is None) != (y is None):
        passed, missing = ("X", "y") if y is None else ("y", "X")
        raise ValueError(f"a test set needs both X and y, got {passed} without {missing}")
    n_effects = whole_number("n_effects", n_effects, least=0)
    n_rows = whole_number("n_rows", n_rows)
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be a string, got {type(title).__name__}")
    target = check_path(path)
    facts = gather(model, X, y, targets=targets, n_effects=n_effects, n_rows=n_rows)
    names = [fitted.name for fitted in facts.fit.targets]
    if title is None:
        what = names[0] if len(names) == 1 else f"{len(names)} targets"
        title = f"Predicting {what}"
    write_whole(target, write_page(facts, advise(facts), title).encode())
    return target


def check_path(path: str | Path) -> Path:
    """The path; raises an error, before anything is computed, if no file can be there."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"path must be a file to write, got the folder {target}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} in")
    return target
