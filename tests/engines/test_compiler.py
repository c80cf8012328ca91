"""Kernels compile where nothing can be written."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import triegp

CODE = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import triegp
    from triegp.engines.cpu.sorting import clz
    import numpy as np
    assert clz(np.uint64(1)) == 63
said = [str(w.message) for w in caught if "cache" in str(w.message)]
print(triegp.__file__)
print(len(said))
print(said[0] if said else "")
"""


def test_kernels_without_a_place_for_their_cache_warn_once(tmp_path):
    """Regular files in place of all cache folders: they stop root too."""
    copy = tmp_path / "site" / "triegp"
    shutil.copytree(Path(triegp.__file__).parent, copy, ignore=lambda *_: ["__pycache__"])
    for folder in [copy, *(path for path in copy.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()
    (tmp_path / "home").touch()
    nowhere = str(tmp_path / "home" / "user")
    places = ("HOME", "USERPROFILE", "LOCALAPPDATA", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
    env = os.environ | dict.fromkeys(places, nowhere) | {"PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    where, count, message = done.stdout.splitlines()
    assert Path(where).parent == copy
    assert count == "1"
    assert "NUMBA_CACHE_DIR" in message
