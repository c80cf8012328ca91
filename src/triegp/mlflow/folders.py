"""Models as MLflow's folders: saving, logging and loading."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow.artifacts import download_artifacts
from mlflow.models import Model
from mlflow.models.utils import _save_example
from mlflow.pyfunc import add_to_model
from mlflow.utils.environment import _validate_env_arguments
from mlflow.utils.model_utils import (
    _add_code_from_conf_to_system_path,
    _validate_and_copy_code_paths,
)

import triegp
from triegp.estimators.base import TreeGPRegressor
from triegp.estimators.loading import load
from triegp.mlflow.environments import CONDA_FILE, PYTHON_FILE, write_environment
from triegp.mlflow.scoring import Scorer
from triegp.mlflow.signatures import make_signature

if TYPE_CHECKING:
    from mlflow.models.model import ModelInfo

FLAVOUR = "triegp"
MODEL_FILE = "model.triegp"
LOADER = "triegp.mlflow"  # the module whose `_load_pyfunc` MLflow calls


def save_model(
    model: Any,
    path: str | Path,
    *,
    training_data: bool = False,
    targets: Sequence[str] | None = None,
    signature: Any = None,
    input_example: Any = None,
    metadata: dict[str, Any] | None = None,
    conda_env: Any = None,
    pip_requirements: Any = None,
    extra_pip_requirements: Any = None,
    code_paths: list[str] | None = None,
    mlflow_model: Model | None = None,
) -> None:
    """Write a fitted estimator as an MLflow model, completely or not at all.

    Parameters
    ----------
    model : BinaryTreeGPRegressor or TrieGPRegressor
        Fitted. Those of `triegp.dask` are written as local ones.
    path : str or Path
        A folder that does not exist, or is empty.
    training_data : bool, default=False
        Whether to store the training rows too, which `refresh` needs after loading.
    targets : sequence of str, optional
        Names of the targets, which go in front of the names of predicted columns, as in
        `price_mean`. By default, a single target has none, and several are y0, y1, ...
    signature : ModelSignature or False, optional
        Its outputs are replaced by the columns that are predicted; parameters are added if it has
        none. By default, inputs are inferred from `input_example`, and are not checked without one.
        False for no signature: MLflow then drops the `params` of predictions.
    input_example : data frame, array or (rows, params), optional
        A few rows, which are stored as JSON. Params become the defaults of predictions.
    metadata : dict, optional
        Stored in `MLmodel`.
    conda_env, pip_requirements, extra_pip_requirements : optional
        The environment, as for MLflow's own models. By default `get_default_pip_requirements`.
    code_paths : list of str, optional
        Python files or folders to store with the model; loading puts them on the path.
    mlflow_model : Model, optional
        The record to add to; `log_model` passes it.

    Raises
    ------
    TypeError
        If the model is not an estimator of triegp, or if its `target_transform` is a transformer
        of scikit-learn, which model files cannot hold.
    NotFittedError
        If it is not fitted.
    FileExistsError
        If the folder is not empty.

    Notes
    -----
    The estimator is one file of JSON and safetensors, as `save` writes it. There are no pickles.

    Examples
    --------
    >>> import tempfile
    >>> import mlflow.pyfunc
    >>> import numpy as np
    >>> from triegp import BinaryTreeGPRegressor
    >>> from triegp.mlflow import save_model
    >>> X = np.random.default_rng(0).random((200, 2))
    >>> model = BinaryTreeGPRegressor(n_members=2, random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, folder, input_example=X[:3])
    ...     scorer = mlflow.pyfunc.load_model(folder)
    >>> list(scorer.predict(X[:5], params={"coverage": 0.5}).columns)
    ['mean', 'std', 'low', 'high']
    """
    local = check_model(model)
    _validate_env_arguments(conda_env, pip_requirements, extra_pip_requirements)
    scorer = Scorer(local, targets)
    record = Model() if mlflow_model is None else mlflow_model
    if metadata is not None:
        record.metadata = metadata
    with new_folder(path) as folder:
        code = _validate_and_copy_code_paths(code_paths, str(folder))
        example = _save_example(record, input_example, str(folder))
        rows = None if example is None else example.inference_data
        params = None if example is None else example.inference_params
        record.signature = make_signature(signature, rows, params, scorer)
        local.save(folder / MODEL_FILE, training_data=training_data)
        add_to_model(
            record,
            loader_module=LOADER,
            data=MODEL_FILE,
            code=code,
            conda_env=CONDA_FILE,
            python_env=PYTHON_FILE,
            model_config=None if targets is None else {"targets": list(targets)},
        )
        record.add_flavor(
            FLAVOUR,
            triegp_version=triegp.__version__,
            estimator=type(local).__name__,
            data=MODEL_FILE,
            training_data=training_data,
            code=code,
        )
        cuda = local.engine == "cuda"
        write_environment(folder, conda_env, pip_requirements, extra_pip_requirements, cuda)
        record.model_size_bytes = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        record.save(str(folder / "MLmodel"))


def log_model(
    model: Any,
    name: str | None = None,
    *,
    registered_model_name: str | None = None,
    await_registration_for: int | None = 300,
    training_data: bool = False,
    targets: Sequence[str] | None = None,
    signature: Any = None,
    input_example: Any = None,
    metadata: dict[str, Any] | None = None,
    conda_env: Any = None,
    pip_requirements: Any = None,
    extra_pip_requirements: Any = None,
    code_paths: list[str] | None = None,
    params: dict[str, Any] | None = None,
    tags: dict[str, Any] | None = None,
    model_type: str | None = None,
    step: int = 0,
    model_id: str | None = None,
) -> ModelInfo:
    """Log a fitted estimator as an MLflow model, in the active run if there is one.

    Parameters
    ----------
    model : BinaryTreeGPRegressor or TrieGPRegressor
        Fitted.
    name : str, optional
        Name of the model.
    registered_model_name : str, optional
        Registers the model as a new version under this name.
    await_registration_for : int, default=300
        Seconds to wait for the version to be ready; 0 or None not to wait.
    training_data, targets, signature, input_example, metadata : optional
        As for `save_model`.
    conda_env, pip_requirements, extra_pip_requirements, code_paths : optional
        As for `save_model`.
    params, tags, model_type, step, model_id : optional
        As for MLflow's own models: what the tracking server shows of the model.

    Returns
    -------
    ModelInfo
        MLflow's record; `load_model` takes its `model_uri`.
    """
    local = check_model(model)  # before the tracking server hears of the model
    Scorer(local, targets)
    found: ModelInfo = Model.log(
        artifact_path=None,
        name=name,
        flavor=sys.modules[LOADER],
        registered_model_name=registered_model_name,
        await_registration_for=await_registration_for,
        metadata=metadata,
        params=params,
        tags=tags,
        model_type=model_type,
        step=step,
        model_id=model_id,
        model=local,
        training_data=training_data,
        targets=targets,
        signature=signature,
        input_example=input_example,
        conda_env=conda_env,
        pip_requirements=pip_requirements,
        extra_pip_requirements=extra_pip_requirements,
        code_paths=code_paths,
    )
    return found


def load_model(model_uri: str | Path, dst_path: str | Path | None = None) -> Any:
    """Read the estimator of an MLflow model; its predictions have the same bits.

    Parameters
    ----------
    model_uri : str or Path
        A folder, or a URI such as `models:/name/1`, `models:/name@alias`, `runs:/id/name` or
        `s3://bucket/path`.
    dst_path : str or Path, optional
        Where to download to; by default, a new folder for temporary files.

    Returns
    -------
    BinaryTreeGPRegressor or TrieGPRegressor
        The fitted estimator itself. `mlflow.pyfunc.load_model` returns MLflow's scorer instead.

    Raises
    ------
    ValueError
        If the model is not one of `save_model` or `log_model`.
    """
    to = None if dst_path is None else str(dst_path)
    folder = download_artifacts(artifact_uri=str(model_uri), dst_path=to)
    flavours = Model.load(folder).flavors
    if FLAVOUR not in flavours:
        raise ValueError(
            f"model_uri must be a model with the flavour {FLAVOUR}, got {model_uri} with "
            f"{', '.join(sorted(flavours))}"
        )
    own = flavours[FLAVOUR]
    _add_code_from_conf_to_system_path(folder, own)
    return load(Path(folder) / own["data"])


def check_model(model: Any) -> TreeGPRegressor:
    """The estimator that can be saved, local and fitted; raises TypeError for anything else."""
    if not isinstance(model, TreeGPRegressor):
        raise TypeError(
            "model must be a BinaryTreeGPRegressor or a TrieGPRegressor, got "
            f"{type(model).__name__}: MLflow has flavours of its own for other estimators"
        )
    local: TreeGPRegressor = model.to_local() if hasattr(model, "to_local") else model
    local._check_savable()
    return local


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A folder to fill. After an error it is as before: not there, or empty."""
    folder = Path(path).resolve()
    there = folder.exists()
    if there and list(folder.iterdir()):
        raise FileExistsError(f"path must be a new or an empty folder, got {path}")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except BaseException:
        for item in folder.iterdir():
            shutil.rmtree(item) if item.is_dir() else item.unlink()
        if not there:
            folder.rmdir()
        raise
