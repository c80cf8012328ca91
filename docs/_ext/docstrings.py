"""What the site does to docstrings and pages.

Pages that docstrings name become links, and scikit-learn's hooks are left out.
In the code a page is named as a path, such as `docs/tables.md`, which readers of the code can open.
"""

import re

PAGE = re.compile(r"`docs/(\w+)\.md`")
HOOKS = re.compile(r"get_metadata_routing|set_\w+_request")
SESSION = re.compile(r"^(```pycon\n.*?\n)\n```", re.MULTILINE | re.DOTALL)
MATHS = re.compile(r":math:`([^`]*)`")  # would be set by a script from the network


def link_pages(app, what, name, obj, options, lines):
    """Edit the lines of a docstring in place."""
    if (getattr(obj, "__module__", None) or "").startswith("sklearn"):
        lines[:] = without_references(lines)
    lines[:] = [MATHS.sub(r"``\1``", PAGE.sub(r":doc:`/\1`", line)) for line in lines]


def without_references(lines):
    """Drop paragraphs that refer to pages of scikit-learn's own site."""
    paragraphs = "\n".join(lines).split("\n\n")
    return "\n\n".join(part for part in paragraphs if ":ref:" not in part).split("\n")


def skip_hooks(app, what, name, obj, skip, options):
    """Skip methods by which scikit-learn routes metadata; leave the rest to others."""
    return True if HOOKS.fullmatch(name) else None


def trim_sessions(app, name, source):
    """Cut the empty line that ends a session, which doctest needs and readers do not."""
    source[0] = SESSION.sub(lambda found: found[1] + "```", source[0])


def kernels(module):
    """Names of what is public in a module of kernels, which numba wraps."""
    home = module.__name__
    public = {name: value for name, value in vars(module).items() if name[0] != "_"}
    return [
        name
        for name, value in public.items()
        if callable(value) and getattr(value, "py_func", value).__module__ == home
    ]


def setup(app):
    """Called by Sphinx."""
    app.connect("source-read", trim_sessions)
    app.connect("autodoc-process-docstring", link_pages, priority=100)
    app.connect("autodoc-skip-member", skip_hooks)
    return {"parallel_read_safe": True}
