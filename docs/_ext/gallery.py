"""Which examples the site runs: those whose data sets are there.

A script says what it needs by a line `# needs: NAME ...`, a folder for each name under the data
folder: $TRIEGP_DATA, or shared/data beside the repository. Others are shown, but not run.
"""

import builtins
import math
import os
import re
from pathlib import Path

from sphinx.util.logging import getLogger

NEEDS = re.compile(r"^#\s*needs:\s*(.+)$", re.MULTILINE)


def gallery_settings(root, run=True):
    """Settings of sphinx-gallery for the scripts examples/plot_*.py."""
    folder = Path(root) / "examples"
    ready = [path for path in sorted(folder.glob("plot_*.py")) if not missing(path, root)]
    for path in sorted(folder.glob("plot_*.py")):
        if absent := missing(path, root):
            getLogger(__name__).info(
                "examples: %s is shown but not run, without %s", path.name, ", ".join(absent)
            )
    return {
        "examples_dirs": str(folder),
        "gallery_dirs": "auto_examples",
        "filename_pattern": "|".join(f"/{re.escape(path.name)}$" for path in ready) or "(?!)",
        "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",
        "plot_gallery": run,
        "abort_on_example_error": True,
        "within_subsection_order": "FileNameSortKey",
        "nested_sections": False,
        "backreferences_dir": None,
        "download_all_examples": False,
        "show_memory": False,
        "show_signature": False,
        "write_computation_times": False,
        "min_reported_time": math.inf,
        "remove_config_comments": True,
        "reset_modules": ("matplotlib", "gallery.name_script"),
    }


def name_script(settings, path):
    """Let a script find its folder by __file__, which sphinx-gallery does not set."""
    builtins.__file__ = str(Path(settings["examples_dirs"]) / Path(path).name)


def missing(path, root):
    """Names of the data sets that a script needs and that are not there."""
    names = [name for line in NEEDS.findall(path.read_text()) for name in line.split()]
    return [name for name in names if not any((data / name).exists() for data in folders(root))]


def folders(root):
    """Where data sets may lie."""
    named = os.environ.get("TRIEGP_DATA")
    return [Path(named)] if named else [Path(root).parent / "shared" / "data"]
