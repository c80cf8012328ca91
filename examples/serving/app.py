"""A fitted model behind HTTP: means, deviations and intervals of one row or many.

    pip install fastapi uvicorn
    TRIEGP_MODEL=model.triegp uvicorn app:app

Endpoints are plain functions, so FastAPI calls them in threads; they share one model.
"""

import math
import os
import threading
from contextlib import asynccontextmanager
from datetime import datetime, time, timedelta
from typing import Annotated

import numpy as np
from fastapi import FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from triegp import serving

Cell = bool | int | float | str | None  # None is a gap
Row = dict[str, Cell] | list[Cell]  # by name of the column, or in the order of training


class Question(BaseModel):
    """Rows of features, and the share of new observations that intervals should contain."""

    rows: Annotated[list[Row], Field(min_length=1, max_length=10_000)]
    coverage: Annotated[float, Field(gt=0, lt=1)] = 0.9


class Answer(BaseModel):
    """One number per row."""

    mean: list[float]
    std: list[float]
    low: list[float]
    high: list[float]
    outside_box: list[bool]


EXPECTED = {
    "number": "a finite number",
    "text": "a string",
    "time": "a date or time as text, such as 2026-03-29 or 2026-03-29T14:30",
    "duration": "a number of seconds",
}
models = {}


@asynccontextmanager
async def lifespan(app: FastAPI):
    """Load the model, which answers at once, and compile its kernels meanwhile."""
    model = models["model"] = serving.load(os.environ["TRIEGP_MODEL"])
    if model.target_mean_.size != 1:
        raise ValueError(f"the model must have one target, got {model.target_mean_.size}")
    compiling = app.state.compiling = threading.Thread(target=model.compile)
    compiling.start()
    yield
    compiling.join()
    models.clear()


app = FastAPI(title="triegp", lifespan=lifespan)


@app.exception_handler(RequestValidationError)
def refuse(request, error: RequestValidationError) -> JSONResponse:
    """Say what is wrong without quoting the input, which JSON may not be able to hold."""
    said = [".".join(map(ascii, one["loc"])) + f": {one['msg']}" for one in error.errors()[:10]]
    return JSONResponse({"detail": said}, 422)


@app.post("/predict")
def predict(question: Question) -> Answer:
    """Predict new observations."""
    model = models["model"]
    rows = read_rows(question.rows, model)
    try:
        distribution = model.predict_distribution(rows)
    except ValueError as error:  # such as rows outside the box of a model with outside="error"
        raise HTTPException(422, str(error)) from error
    low, high = distribution.interval(question.coverage).T
    return Answer(
        mean=distribution.mean().tolist(),
        std=distribution.std().tolist(),
        low=low.tolist(),
        high=high.tolist(),
        outside_box=model.outside_box(rows).tolist(),
    )


def read_rows(rows: list[Row], model: serving.ServedModel) -> np.ndarray:
    """Rows as an array of Python objects, with columns in the order of training."""
    columns = model.columns_
    names = columns.names or range(model.n_features_in_)
    kinds = [
        "text"
        if kind in ("category", "ordered") and isinstance(next(iter(listed), ""), str)
        else columns.format_of(j) or kind
        for j, (kind, listed) in enumerate(zip(columns.kinds, columns.categories, strict=True))
    ]
    table = np.empty((len(rows), len(kinds)), dtype=object)
    for i, row in enumerate(rows):
        if isinstance(row, dict):
            for name in (*names, *row):
                if name not in row or name not in names:
                    wrong = "is missing" if name not in row else "is none of the model's"
                    raise HTTPException(422, f"column {name!a} of row {i} {wrong}")
            row = [row[name] for name in names]
        if len(row) != len(kinds):
            raise HTTPException(422, f"row {i} must have {len(kinds)} cells, got {len(row)}")
        for j, (cell, kind) in enumerate(zip(row, kinds, strict=True)):
            try:
                table[i, j] = read_cell(cell, kind)
            except (ValueError, TypeError, OverflowError):
                date = f"a date as text, {kind}" if "yyyy" in kind else EXPECTED["number"]
                expected = EXPECTED.get(kind, date)
                said = f"column {names[j]!a} of row {i} must be {expected}, got {cell!a:.80}"
                raise HTTPException(422, said) from None
    return table


def read_cell(cell: Cell, kind: str) -> Cell | datetime | time | timedelta:
    """A cell as the model takes it; raises ValueError, TypeError or OverflowError for others."""
    if cell is None:
        return None
    if kind == "time":
        return time.fromisoformat(cell) if ":" in cell[:3] else datetime.fromisoformat(cell)
    if kind == "duration":
        return timedelta(seconds=cell)
    if kind == "text" or "yyyy" in kind:  # the model reads dates in the format of training
        if not isinstance(cell, str):
            raise TypeError
    elif not math.isfinite(cell):
        raise ValueError
    return cell
