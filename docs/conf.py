"""Settings of the documentation site: `make docs` builds it into docs/_build/html.

With GALLERY=0 in the environment, the examples are shown but not run.
"""

import inspect
import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from docstrings import kernels  # noqa: E402
from gallery import gallery_settings  # noqa: E402

from triegp import engines  # noqa: E402

project = "triegp"
author = "The triegp developers"
copyright = author
release = version = version_of("triegp")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "docstrings",
]
exclude_patterns = ["_build", "_ext", "_templates"]
templates_path = ["_templates"]
nitpicky = True
# The site is built without the network, so names of other libraries are not looked up.
nitpick_ignore_regex = [(r"py:.*", r"(?!triegp\.[\w.]+$).*")]

# Markdown
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
pygments_style = "a11y-high-contrast-light"

# Reference
default_role = "py:obj"
autosummary_generate = True
MODULES = [name for name in engines.__all__ if inspect.ismodule(getattr(engines, name))]
autosummary_context = {
    "kernels": {f"triegp.engines.{name}": kernels(getattr(engines, name)) for name in MODULES}
}
autodoc_mock_imports = ["torch", "botorch", "gpytorch", "mlflow", "skpro", "optuna"]  # extras
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
numpydoc_show_class_members = False
add_module_names = False
toc_object_entries_show_parents = "hide"

# Examples
sphinx_gallery_conf = gallery_settings(HERE.parent, run=os.environ.get("GALLERY", "1") != "0")
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Pages
html_theme = "pydata_sphinx_theme"
html_title = "triegp"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/logo.svg"
html_copy_source = False
html_show_sourcelink = False
html_context = {"default_mode": "auto"}
html_sidebars = {"contributing": [], "changelog": []}
html_theme_options = {
    "logo": {
        "text": "triegp",
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
        "alt_text": "triegp",
    },
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
