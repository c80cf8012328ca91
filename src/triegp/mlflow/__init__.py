"""Fitted estimators as MLflow models: `pip install 'triegp[mlflow]'`."""

from triegp.mlflow.environments import get_default_conda_env, get_default_pip_requirements
from triegp.mlflow.folders import load_model, log_model, save_model
from triegp.mlflow.scoring import load_scorer as _load_pyfunc  # noqa: F401  MLflow calls this name

__all__ = [
    "get_default_conda_env",
    "get_default_pip_requirements",
    "load_model",
    "log_model",
    "save_model",
]
