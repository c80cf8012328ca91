"""The screening benchmark, small."""

import pytest

pytest.importorskip("botorch.models", reason="needs the extra botorch: make botorch-test")

from bench import screening


def test_all_methods_are_shown(capsys):
    screening.main(200, 300, 2)
    said = capsys.readouterr().out
    for name in ("random", "trees, thompson", "trees, qlogei", "trees, mean"):
        assert f"{name} " in said
    for name in ("exact process, thompson", "exact process, logei"):
        assert f"{name} " in said
