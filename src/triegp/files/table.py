"""Rules for what reads a table in a model file: columns, layout, encoders, transforms, rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.codes import check_precision
from triegp.encoding.columns import KINDS, Columns
from triegp.encoding.dates import FORMATS
from triegp.encoding.layout import BY_CODE, ROLES, Layout
from triegp.encoding.quantiser import OUTSIDE, Quantiser, check_shift
from triegp.encoding.scaling import SCALINGS
from triegp.files.codec import LARGEST, LEAST, RULES, VARIANTS, Rule, never_falling, rising, shorten
from triegp.models.transforms import Log, Quantile, Transform, YeoJohnson
from triegp.tree.rows import Rows

ROLES_OF = {
    "number": ("value", "missing"),
    "duration": ("value", "missing"),
    "ordered": ("value", "missing"),
    "category": (*BY_CODE, "missing"),
    "time": ("value", "missing", "weekday", "hour", "yearday"),
}
CODED = ("category", "ordered")
LOGS = (-746.0, 710.0)  # of the numbers of float64
LARGEST_COUNT = 1e300  # weight of a row, number and squares of its observations


def check_columns(columns: Columns) -> None:
    """Raise ValueError unless there is one list of distinct categories per column."""
    kinds, names = columns.kinds, columns.names
    if not kinds or len(columns.categories) != len(kinds):
        raise ValueError(f"categories must be one list per column, got {len(columns.categories)}")
    for kind, listed in zip(kinds, columns.categories, strict=True):
        if listed and kind not in CODED:
            raise ValueError(f"a column of kind {kind} must not have categories")
        if len({type(value) is str for value in listed}) > 1 or any(
            type(value) not in (str, float, int) or value != value for value in listed
        ):
            raise ValueError("categories must be strings or numbers, not both")
        if len(set(listed)) != len(listed):
            raise ValueError("categories must be distinct")
    if names is not None and (len(names) != len(kinds) or len(set(names)) != len(names)):
        raise ValueError(f"names must be {len(kinds)} distinct texts, got {shorten(names)}")
    formats, pairs = columns.formats, zip(columns.formats, kinds, strict=False)
    if len(formats) not in (0, len(kinds)) or any(form and kind != "time" for form, kind in pairs):
        raise ValueError(f"formats must be of times only, got {shorten(formats)}")


def check_layout(layout: Layout, columns: Columns) -> None:
    """Raise ValueError unless a layout is one of these columns."""
    kinds, source, known = columns.kinds, layout.source.tolist(), layout.n_known
    if layout.n_columns != len(kinds) or set(source) != set(range(len(kinds))):
        raise ValueError(f"layout.source must name all of {len(kinds)} columns")
    if (known < 0).any() or (known > [len(listed) for listed in columns.categories]).any():
        raise ValueError("layout.n_known must not exceed the number of categories")
    if not len(layout.roles) == len(layout.tables) == len(source):
        raise ValueError(f"layout must have {len(source)} roles and tables")
    if len(set(zip(layout.roles, source, strict=True))) != len(source):
        raise ValueError("layout must not have a role twice for a column")
    for j, role, table in zip(source, layout.roles, layout.tables, strict=True):
        if role not in ROLES_OF[kinds[j]]:
            raise ValueError(f"a column of kind {kinds[j]} must not have the role {role}")
        size = int(known[j]) + int(layout.gaps[j]) if role in BY_CODE else 0
        if table.size != size or (role in BY_CODE and not size):
            raise ValueError(f"layout.tables must have {size} entries for column {j}")
        if size and role != "mean" and not np.array_equal(np.sort(table), np.arange(size)):
            raise ValueError(f"layout.tables must hold ranks for column {j}")
    for j, kind in enumerate(kinds):
        if np.isnan(layout.grid[j]).any() and not (kind == "category" and layout.gaps[j]):
            raise ValueError("layout.grid must be finite for columns without gaps")
        if kind in CODED:
            _check_codes("layout.grid", layout.grid[j], max(int(known[j]), 1))


def check_features(X: npt.NDArray[Any], columns: Columns) -> None:
    """Raise ValueError unless training rows have codes of listed categories."""
    for j, listed in enumerate(columns.categories):
        if columns.kinds[j] in CODED:
            _check_codes(f"kept.X, column {j}", X[:, j], len(listed))


def _check_codes(name: str, values: npt.NDArray[Any], n_codes: int) -> None:
    codes = values[~np.isnan(values)]
    if ((codes < 0) | (codes >= n_codes) | (codes != np.floor(codes))).any():
        raise ValueError(f"{name} must hold codes below {n_codes}")


def _make_encoder(_: Any, scaling: str, outside: str, margin: float, **arrays: Any) -> Quantiser:
    """An encoder, checked."""
    encoder = Quantiser(scaling=scaling, outside=outside, margin=margin)
    for name, array in arrays.items():
        setattr(encoder, name, array)
    low, high, knots, shift = encoder.low_, encoder.high_, encoder.knots_, encoder.shift_
    if (low > high).any():
        raise ValueError("low_ must not exceed high_")
    if (scaling == "ecdf") != (knots is not None):
        raise ValueError("knots_ must be there if scaling is 'ecdf', and only then")
    if knots is not None and ((knots[:, 0] > low).any() or (knots[:, -1] < high).any()):
        raise ValueError("knots_ must contain the box")
    check_precision(encoder.precision_, low.size)
    if shift is not None:
        check_shift(np.nan_to_num(shift), low.size)
        check_precision(encoder.precision_ - ~np.isnan(shift), low.size)  # it adds a bit
    encoder.n_bits_ = int(encoder.precision_.sum())
    return encoder


def _check_range(transform: Log | YeoJohnson) -> None:
    low, high = transform.low, transform.high
    if not low <= high:
        raise ValueError(f"low of a transform must not exceed high, got {low} and {high}")
    if isinstance(transform, Log) and (low == 0 or -np.inf < low < 0):
        raise ValueError(f"the smallest target of a log must be positive, got {low}")


def _check_quantiles(transform: Quantile) -> None:
    if transform.y.size < 2:
        raise ValueError("y must have at least 2 entries")


def _make_rows(_: Any, **fields: Any) -> Rows:
    """Rows without negative zeros: noise over a weight of -0 would be minus infinity."""
    for name in ("weight", "copies", "scatter"):
        if fields[name] is not None and np.signbit(fields[name]).any():
            fields[name] = fields[name] + 0.0
    rows = Rows(**fields)
    if rows.weight is None and not (rows.copies is None and rows.scatter is None):
        raise ValueError("copies and scatter require weights")
    return rows


COUNTS = (0.0, LARGEST_COUNT)
RULES[Columns] = Rule("", {"kinds": KINDS, "formats": ("", *FORMATS)}, check=check_columns)
RULES[Layout] = Rule(
    "source:features gaps:columns fill:columns tables:_ grid:columns,16 n_known:columns",
    {"roles": ROLES},
    odd=("grid",),
)
RULES[Quantiser] = Rule(
    "low_:d high_:d knots_:d,11 shift_:d precision_:d",
    {
        "scaling": SCALINGS,
        "outside": OUTSIDE,
        "margin": (0.0, LARGEST),
        "knots_": never_falling,
    },
    odd=("shift_",),
    without=("feature_names_in_", "n_bits_", "two_valued_"),
    make=_make_encoder,
)
RULES[Log] = Rule("", {"centre": LOGS}, odd=("low", "high"), check=_check_range)
RULES[YeoJohnson] = Rule(
    "", {"scale": (LEAST, LARGEST), "power": (0, 2)}, odd=("low", "high"), check=_check_range
)
RULES[Quantile] = Rule("y:k z:k", {"y": rising, "z": rising}, check=_check_quantiles)
VARIANTS[Transform] = dict.fromkeys(("Log", "YeoJohnson", "Quantile"), __name__)
RULES[Rows] = Rule(
    "y:n|n,k known_noise:n|n,k weight:n X:n,d noise:n|1 copies:n scatter:n|n,k",
    {"known_noise": (0, LARGEST), "weight": COUNTS, "copies": COUNTS, "scatter": COUNTS},
    odd=("X",),
    make=_make_rows,
)
