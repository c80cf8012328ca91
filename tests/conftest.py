"""Settings for all tests. Compiled kernels are cached by what is in all engine sources together:

numba looks at a kernel's own file only, and would not see a change in what the kernel inlines.
"""

import hashlib
import os
import tempfile
from pathlib import Path

import hypothesis

_engines = Path(__file__).parents[1] / "src" / "triegp" / "engines"
_digest = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(_engines.rglob("*.py"))))
os.environ.setdefault(
    "NUMBA_CACHE_DIR",
    str(Path(tempfile.gettempdir()) / f"triegp-numba-{_digest.hexdigest()[:16]}"),
)

hypothesis.settings.register_profile(
    "triegp", deadline=None, derandomize=True, print_blob=True, max_examples=60
)
hypothesis.settings.load_profile("triegp")
