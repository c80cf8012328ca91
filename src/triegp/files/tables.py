"""Columns of a table and their layout in model files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from triegp.encoding.columns import KINDS, Columns, plain_columns
from triegp.encoding.dates import FORMATS
from triegp.encoding.layout import BY_CODE, N_VARIANTS, ROLES, Layout, plain_layout
from triegp.encoding.quantiser import Quantiser
from triegp.files.contents import check_array

Arrays = dict[str, npt.NDArray[Any]]

ROLES_OF = {
    "number": ("value", "missing"),
    "duration": ("value", "missing"),
    "ordered": ("value", "missing"),
    "category": (*BY_CODE, "missing"),
    "time": ("value", "missing", "weekday", "hour", "yearday"),
}


def pack_table(columns: Columns, layout: Layout) -> tuple[dict[str, Any], Arrays]:
    """Facts that JSON can hold, and arrays. Names are stored as feature_names."""
    facts = {
        "kinds": list(columns.kinds),
        "categories": [list(listed) for listed in columns.categories],
        "roles": list(layout.roles),
    }
    if columns.formats:
        facts["formats"] = list(columns.formats)
    arrays: Arrays = {
        "table.source": layout.source,
        "table.gaps": layout.gaps,
        "table.fill": layout.fill,
        "table.grid": layout.grid,
        "table.known": layout.n_known,
    }
    arrays |= {f"table.{k}": table for k, table in enumerate(layout.tables) if table.size}
    return facts, arrays


def unpack_table(
    header: dict[str, Any], arrays: Arrays, encoders: Sequence[Quantiser]
) -> tuple[Columns, Layout]:
    """The columns and their layout; before format version 6 all columns are numbers."""
    n_working = encoders[0].n_working
    names, facts = header["feature_names"], header["table"]
    if facts is None:
        columns, layout = _old_table(encoders)
    else:
        columns, layout = _unpack_new(facts, arrays, n_working)
    if names is None:
        return columns, layout
    strings = all(isinstance(name, str) for name in names)
    if len(names) != layout.n_columns or not strings or len(set(names)) != len(names):
        raise ValueError(
            f"feature_names must be {layout.n_columns} distinct names, got {names!r:.80}"
        )
    return replace(columns, names=tuple(names)), layout


def _unpack_new(facts: dict[str, Any], arrays: Arrays, n_working: int) -> tuple[Columns, Layout]:
    kinds = tuple(facts["kinds"])
    categories = tuple(tuple(listed) for listed in facts["categories"])
    roles, n_columns = tuple(facts["roles"]), len(kinds)
    if not n_columns or any(kind not in KINDS for kind in kinds) or len(categories) != n_columns:
        raise ValueError(f"table must have known kinds and one list per column, got {kinds!r:.80}")
    for kind, listed in zip(kinds, categories, strict=True):
        if listed and kind not in ("category", "ordered"):
            raise ValueError(f"a column of kind {kind} must not have categories")
        if len({type(value) is str for value in listed}) > 1 or any(
            type(value) not in (str, float, int) or value != value for value in listed
        ):
            raise ValueError("categories must be strings or numbers, not both")
        if len(set(listed)) != len(listed):
            raise ValueError("categories must be distinct")
    if len(roles) != n_working or any(role not in ROLES for role in roles):
        raise ValueError(f"table must have {n_working} known roles, got {roles!r:.80}")
    source = check_array(arrays, "table.source", np.int64, (n_working,))
    if set(source.tolist()) != set(range(n_columns)):
        raise ValueError(f"table.source must name all of {n_columns} columns")
    gaps = check_array(arrays, "table.gaps", np.bool_, (n_columns,))
    fill = check_array(arrays, "table.fill", np.float64, (n_columns,))
    grid = check_array(arrays, "table.grid", np.float64, (n_columns, N_VARIANTS), missing=True)
    known = check_array(arrays, "table.known", np.int64, (n_columns,))
    limits = np.array([len(listed) for listed in categories])
    if (known < 0).any() or (known > limits).any():
        raise ValueError("table.known must not exceed the number of categories")
    tables = []
    for k, role in enumerate(roles):
        table, j = np.empty(0), int(source[k])
        if role not in ROLES_OF[kinds[j]]:
            raise ValueError(f"a column of kind {kinds[j]} must not have the role {role}")
        if role in BY_CODE:
            size = int(known[j]) + int(gaps[j])
            table = check_array(arrays, f"table.{k}", np.float64, (size,))
            if role != "mean" and not np.array_equal(np.sort(table), np.arange(size)):
                raise ValueError(f"table.{k} must be ranks")
        tables.append(table)
    if len(set(zip(roles, source.tolist(), strict=True))) != len(roles):
        raise ValueError("table must not have a role twice for a column")
    for j, kind in enumerate(kinds):
        _check_grid(grid[j], kind, int(known[j]), bool(gaps[j]))
    columns = Columns(kinds, categories, formats=_read_formats(facts, kinds))
    return columns, Layout(roles, source, gaps, fill, tuple(tables), grid, known)


def _read_formats(facts: dict[str, Any], kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Formats of dates that were strings; none in files without them."""
    formats = tuple(facts.get("formats", ()))
    pairs = zip(formats, kinds, strict=False)
    known = all(form == "" or (form in FORMATS and kind == "time") for form, kind in pairs)
    if not known or len(formats) not in (0, len(kinds)):
        raise ValueError(f"table must have known formats, of times only, got {formats!r:.80}")
    return formats


def check_codes(X: npt.NDArray[Any], columns: Columns) -> None:
    """Raise ValueError unless training rows have codes of listed categories."""
    for j, listed in enumerate(columns.categories):
        if columns.kinds[j] not in ("category", "ordered"):
            continue
        codes = X[~np.isnan(X[:, j]), j]
        if ((codes < 0) | (codes >= len(listed)) | (codes != np.floor(codes))).any():
            raise ValueError(f"rows.X must hold codes below {len(listed)} in column {j}")


def _check_grid(values: npt.NDArray[Any], kind: str, known: int, gaps: bool) -> None:
    """Raise ValueError unless values can stand for unseen ones of a column."""
    missing = np.isnan(values)
    if missing.any() and not (kind == "category" and gaps):
        raise ValueError("table.grid must be finite for columns without gaps")
    if kind not in ("category", "ordered"):
        return
    codes = values[~missing]
    if ((codes < 0) | (codes >= max(known, 1)) | (codes != np.floor(codes))).any():
        raise ValueError("table.grid must hold codes of known categories")


def _old_table(encoders: Sequence[Quantiser]) -> tuple[Columns, Layout]:
    """Columns of numbers without gaps; quantiles are those of the encoder, or evenly spaced."""
    low, high, knots = encoders[0].low_, encoders[0].high_, encoders[-1].knots_
    at = (np.arange(N_VARIANTS) + 0.5) / N_VARIANTS
    grid = low[:, None] * (1.0 - at) + high[:, None] * at
    if knots is not None:
        steps = np.linspace(0.0, 1.0, knots.shape[1])
        grid = np.stack([np.interp(at, steps, own) for own in knots])
    return plain_columns(low.size), plain_layout(grid)
