"""Environments of models: the packages that predict, with the versions that are installed."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from mlflow.utils.environment import (
    _mlflow_conda_env,
    _process_conda_env,
    _process_pip_requirements,
    _PythonEnv,
)

import triegp

CONDA_FILE, PYTHON_FILE = "conda.yaml", "python_env.yaml"
REQUIREMENTS_FILE, CONSTRAINTS_FILE = "requirements.txt", "constraints.txt"

# What triegp needs, and pandas, in whose frames MLflow passes rows.
PACKAGES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "threadpoolctl",
    "numba",
    "narwhals",
    "safetensors",
    "tqdm",
    "pandas",
)


def get_default_pip_requirements(*, cuda: bool = False) -> list[str]:
    """Packages of a model's environment, with the versions that are installed here.

    Parameters
    ----------
    cuda : bool, default=False
        Whether to require the CUDA engine, as models with `engine="cuda"` do.

    Returns
    -------
    list of str
        triegp, its dependencies and pandas, as `name==version`. MLflow adds itself.

    Examples
    --------
    >>> from triegp.mlflow import get_default_pip_requirements
    >>> [line.partition("==")[0] for line in get_default_pip_requirements()][:3]
    ['triegp', 'numpy', 'scipy']
    """
    own = "triegp[cuda]" if cuda else "triegp"
    return [f"{own}=={triegp.__version__}", *(f"{name}=={version(name)}" for name in PACKAGES)]


def get_default_conda_env(*, cuda: bool = False) -> dict[str, Any]:
    """The same as a Conda environment, with this Python.

    Parameters
    ----------
    cuda : bool, default=False
        Whether to require the CUDA engine.

    Returns
    -------
    dict
        As `conda.yaml` holds it.
    """
    found: dict[str, Any] = _mlflow_conda_env(
        additional_pip_deps=get_default_pip_requirements(cuda=cuda)
    )
    return found


def write_environment(
    folder: Path,
    conda_env: Any,
    pip_requirements: Any,
    extra_pip_requirements: Any,
    cuda: bool,
) -> None:
    """Write `conda.yaml`, `python_env.yaml`, `requirements.txt` and, if any, `constraints.txt`."""
    if conda_env is None:
        found = _process_pip_requirements(
            get_default_pip_requirements(cuda=cuda), pip_requirements, extra_pip_requirements
        )
    else:
        found = _process_conda_env(conda_env)
    conda, requirements, constraints = found
    (folder / CONDA_FILE).write_text(yaml.safe_dump(conda, default_flow_style=False))
    (folder / REQUIREMENTS_FILE).write_text("\n".join(requirements))
    if constraints:
        (folder / CONSTRAINTS_FILE).write_text("\n".join(constraints))
    _PythonEnv.current().to_yaml(str(folder / PYTHON_FILE))
