"""Run all pages of the gallery without a display, with their times: `python tools/run_examples.py`.

Scripts whose data set is not there are named and left out. Exits with 1 if one fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def missing(script: Path) -> list[str]:
    """Data sets that the script names in its line `# needs: NAME` and that are not there."""
    folder = Path(os.environ.get("TRIEGP_DATA", ROOT.parent / "shared" / "data")).expanduser()
    names = re.findall(r"^# needs: (\w+)$", script.read_text(), re.MULTILINE)
    return [name for name in names if not (folder / name / "data.npz").exists()]


def main() -> int:
    """Run them one after the other; returns the exit code."""
    failed = 0
    for script in sorted((ROOT / "examples").glob("plot_*.py")):
        if names := missing(script):
            print(f"{script.name:28s} left out, without {', '.join(names)}", flush=True)
            continue
        began = time.monotonic()
        run = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, "MPLBACKEND": "Agg"},
            capture_output=True,
            text=True,
        )
        print(f"{script.name:28s} {time.monotonic() - began:6.1f} s")
        print("".join(f"    {line}\n" for line in run.stdout.splitlines()), end="", flush=True)
        if run.returncode:
            failed += 1
            print(f"{script.name} failed:\n{run.stderr}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
