"""Signatures of models: input columns, columns of the predictions, and their parameters."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

from triegp.mlflow.scoring import Request, Scorer

NUMBERS = {  # types that MLflow checks, by the kind and the size of a numpy dtype
    "b1": DataType.boolean,
    "i4": DataType.integer,
    "i8": DataType.long,
    "f4": DataType.float,
    "f8": DataType.double,
}
SMALLER = {"i1": "i4", "i2": "i4", "u1": "i4", "u2": "i4", "u4": "i8", "f2": "f4"}


def make_signature(
    signature: Any, example: Any, params: dict[str, Any] | None, scorer: Scorer
) -> ModelSignature | None:
    """The signature of a model.

    Parameters
    ----------
    signature : ModelSignature, False or None
        What the user gave; False for no signature at all. Its outputs are replaced by those of the
        scorer, because only they are right.
    example : object
        Rows to infer inputs from if there is no signature; None if there are none. Their
        predictions must work.
    params : dict or None
        Parameters of the example, which become the defaults.
    scorer : Scorer
        Predicts.

    Notes
    -----
    Without rows, the inputs are left open. The parameters are there in any case: without them
    MLflow would drop what users pass.
    """
    if signature is False:
        return None
    if signature is not None and not isinstance(signature, ModelSignature):
        raise TypeError(
            f"signature must be a ModelSignature, False or None, got {type(signature).__name__}"
        )
    if example is not None:
        scorer.predict(example, params)  # an example that cannot be predicted raises here
    inputs = signature.inputs if signature is not None else None
    if signature is None and example is not None:
        inputs = infer_inputs(example)
    schema = signature.params if signature is not None else None
    if schema is None:
        schema = parameter_schema(Request.read(params))
    request = Request.read({spec.name: spec.default for spec in schema})
    outputs = Schema([ColSpec(DataType.double, name) for name in scorer.columns(request)])
    return ModelSignature(inputs=inputs, outputs=outputs, params=schema)


def parameter_schema(request: Request) -> ParamSchema:
    """Parameters of predictions, with the values of a request as defaults."""
    return ParamSchema(
        [
            ParamSpec("output", DataType.string, list(request.output), (-1,)),
            ParamSpec("coverage", DataType.double, float(request.coverage)),
            ParamSpec("quantiles", DataType.double, list(map(float, request.quantiles)), (-1,)),
            ParamSpec("latent", DataType.boolean, bool(request.latent)),
        ]
    )


def infer_inputs(example: Any) -> Schema | None:
    """Inputs of a model from rows: columns of a data frame with names, or what MLflow infers.

    All columns of a frame are required. MLflow refuses rows whose columns have a dtype that none of
    its types stands for (categories, times with a zone, durations, numbers with a sign of their own
    for gaps). If a frame has one, this warns and returns None: the estimator alone checks rows.
    Its AnyType is no way out: before version 3.17 it mixes rows up unless their index is 0, 1, ...
    """
    named = isinstance(example, pd.DataFrame) and all(isinstance(c, str) for c in example.columns)
    if not named:
        return infer_signature(example).inputs
    types = {name: column_type(example[name]) for name in example.columns}
    other = [name for name, found in types.items() if found is None]
    if other:
        shown = ", ".join(f"{name!r} ({example[name].dtype})" for name in other[:5])
        shown += ", ..." * (len(other) > 5)
        warnings.warn(
            f"MLflow has no type for columns of input_example, {shown}: "
            "the signature leaves inputs open, and the estimator checks them; give categories as "
            "strings and numbers as float64 to have them in the signature",
            UserWarning,
            stacklevel=4,
        )
        return None
    return Schema([ColSpec(found, name) for name, found in types.items()])


def column_type(column: Any) -> DataType | None:
    """MLflow's type of a column of pandas, or None if it has none that lets all values pass."""
    dtype = column.dtype
    if isinstance(dtype, pd.StringDtype):
        return DataType.string
    if not isinstance(dtype, np.dtype):
        return None
    if dtype.kind == "M":
        return DataType.datetime
    if dtype.kind == "O":
        texts = [isinstance(value, str) for value in column[column.notna()]]
        return DataType.string if texts and all(texts) else None
    name = f"{dtype.kind}{dtype.itemsize}"
    return NUMBERS.get(SMALLER.get(name, name))
