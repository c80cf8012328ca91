"""Settings for all tests, also those in the docstrings of src, docs and README.

Compiled kernels are cached by what is in all engine sources together: numba looks at a kernel's own
file only, and would not see a change in what the kernel inlines.

The CUDA engine's kernels run in numba's simulator (as `tests/simulator.py` mends it), on the host,
unless TRIEGP_TEST_CARD=1 says that there is a card: then they run there, and so do the tests marked
`card`.
"""

import hashlib
import importlib
import importlib.util
import os
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import hypothesis
import pytest

ON_CARD = os.environ.get("TRIEGP_TEST_CARD") == "1"  # as tests/on_card.py says it, too
# Programs of the site, and what it builds, hold no doctests.
collect_ignore = [f"docs/{name}" for name in ("conf.py", "_ext", "_build", "auto_examples", "api")]
if not ON_CARD:
    os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")  # before anything imports numba

_engines = Path(__file__).parent / "src" / "triegp" / "engines"
_digest = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(_engines.rglob("*.py"))))
os.environ.setdefault(
    "NUMBA_CACHE_DIR",
    str(Path(tempfile.gettempdir()) / f"triegp-numba-{_digest.hexdigest()[:16]}"),
)

# A shell's background jobs ignore Ctrl-C, and tests that press it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("MPLBACKEND", "Agg")  # pictures are drawn without a screen

# Workers share the cores: BLAS and OpenMP threads that wait for each other take them from others.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if not ON_CARD and os.environ["NUMBA_ENABLE_CUDASIM"] == "1":
    sys.path.insert(0, str(Path(__file__).parent / "tests"))  # where pytest will look for it, too
    import simulator

    simulator.install()

if importlib.util.find_spec("gpytorch") is None:  # BoTorch has an environment of its own
    collect_ignore += ["src/triegp/botorch", "docs/botorch.md"]

_mlflow = importlib.util.find_spec("mlflow")  # without a file, it is the folder in tests
if _mlflow is None or _mlflow.origin is None:  # it has an environment of its own
    collect_ignore += ["src/triegp/mlflow", "docs/mlflow.md"]
else:
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    os.environ["MLFLOW_TRACKING_URI"] = (Path(tempfile.gettempdir()) / "triegp-mlflow").as_uri()
    with warnings.catch_warnings():  # about type hints of its own, while it is imported
        warnings.simplefilter("ignore")
        importlib.import_module("mlflow.pyfunc")
INTEGRATIONS = ("mapie", "skpro", "sktime", "skore", "optuna", "skopt")  # in one of their own, too
collect_ignore += [
    f"src/triegp/{name}" for name in ("skpro", "optuna") if importlib.util.find_spec(name) is None
]
if any(importlib.util.find_spec(name) is None for name in INTEGRATIONS):
    collect_ignore += ["docs/integrations.md"]

hypothesis.settings.register_profile(
    "triegp", deadline=None, derandomize=True, print_blob=True, max_examples=60
)
hypothesis.settings.register_profile(  # tools/fuzz.py asks for it, with a new seed every time
    "fuzz", deadline=None, derandomize=False, print_blob=True, max_examples=500
)
hypothesis.settings.load_profile("triegp")


def pytest_collection_modifyitems(items):
    """Skip what needs a card where there is none, and what kills processes unless asked for."""
    if os.environ.get("TRIEGP_TEST_CLUSTER") != "1":
        skip = pytest.mark.skip(reason="kills worker processes: make cluster-test")
        for item in items:
            if item.get_closest_marker("cluster"):
                item.add_marker(skip)
    for item in items:
        if item.path.name == "mlflow.md":  # MLflow's, while it writes an example
            quiet = "ignore:Operation with range is deprecated"
            item.add_marker(pytest.mark.filterwarnings(quiet))
        if item.path.name == "integrations.md":  # sktime 1.2 announces a default of its own
            item.add_marker(pytest.mark.filterwarnings("ignore:.*``remember_data``:FutureWarning"))
    if not ON_CARD:
        skip = pytest.mark.skip(reason="needs a CUDA device: set TRIEGP_TEST_CARD=1")
        for item in items:
            if item.get_closest_marker("card"):
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def close_figures():
    """Close the figures of each test; pyplot would keep them all."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
