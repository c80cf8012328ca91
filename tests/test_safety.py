"""What the source never does, and what `make audit` says."""

import ast
import sys
from pathlib import Path

import pytest

import triegp

SOURCE = Path(triegp.__file__).parent
TOOLS = Path(__file__).parents[1] / "tools"
FILES = sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py"))
CALLS = {"eval", "exec", "compile", "__import__", "system", "popen", "fromregex"}
MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "subprocess"}


FLAWS = [{"id": "X-1", "fix_versions": ["3"]}, {"id": "X-2"}]


def name_of(call):
    target = call.func
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


@pytest.mark.parametrize("name", FILES)
def test_no_code_is_made_from_data(name):
    """No eval, no pickle, no shell; arrays of objects are never read from files."""
    for node in ast.walk(ast.parse((SOURCE / name).read_text())):
        if isinstance(node, ast.Call):
            plain = isinstance(node.func, ast.Name)
            assert not (plain and name_of(node) in CALLS), f"line {node.lineno}"
            assert name_of(node) not in ("system", "popen"), f"line {node.lineno}"
            names = {word.arg: word.value for word in node.keywords}
            assert "allow_pickle" not in names, f"line {node.lineno}"
            assert "shell" not in names, f"line {node.lineno}"
        if isinstance(node, ast.Import):
            roots = {one.name.split(".")[0] for one in node.names}
            assert not roots & MODULES, f"line {node.lineno}"
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in MODULES, f"line {node.lineno}"


def test_the_audit_counts_flaws_and_what_it_could_not_look_up():
    sys.path.insert(0, str(TOOLS))
    try:
        from audit import report
    finally:
        sys.path.remove(str(TOOLS))
    found = [
        {"name": "a", "version": "1", "vulns": []},
        {"name": "b", "version": "2", "vulns": FLAWS},
        {"name": "c", "skip_reason": "not found"},
        {"name": "triegp", "skip_reason": "not found"},
    ]
    lines, n_flaws = report(found)
    assert n_flaws == 2
    assert lines == [
        "b 2: X-1, fixed in 3",
        "b 2: X-2, fixed in no version",
        "2 packages audited, 2 vulnerabilities",
        "NOT AUDITED, 1 packages: c",
    ]
