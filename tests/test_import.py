"""What `import triegp` loads, and what it offers."""

import subprocess
import sys

import pytest

import triegp


def test_import_loads_no_library():
    heavy = ("numpy", "numba", "scipy", "sklearn", "matplotlib", "dask", "pandas", "mlflow")
    code = f"import sys, triegp; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_is_there_and_listed():
    for name in triegp.__all__:
        assert getattr(triegp, name).__name__ == name
        assert name in dir(triegp)
    assert set(triegp.__all__) == set(triegp._HOMES)


def test_other_names_raise():
    with pytest.raises(AttributeError, match="no attribute 'Forest'"):
        _ = triegp.Forest
