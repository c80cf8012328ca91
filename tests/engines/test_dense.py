"""Matrices of sorted trees and sums over pairs of rows by depth, by their definition."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from forest_problems import make_problem
from tolerances import VALUE
from triegp.additive.ranking import rank_bits
from triegp.engines import CpuEngine, dense
from triegp.tree.rows import Rows


def sort(problem, n_threads=1):
    parameters = problem.parameters
    ranking = rank_bits(parameters.phi, parameters.log_scale)
    packed = [codes.packed for codes in problem.codes]
    given = (ranking.key_bits(), ranking.levels, ranking.first)
    return dense.sort_trees(packed, *given, n_threads)


def entries_of(n):
    entries = np.random.default_rng(0).standard_normal((n, n))
    return entries + entries.T


@pytest.mark.parametrize("rows", [[0], [0, 0, 0], range(3), range(90)])
@pytest.mark.parametrize("precision", [1, 4, 12])
def test_the_matrix_and_the_sums_are_those_of_the_definition(rows, precision, monkeypatch):
    monkeypatch.setattr(dense, "ROWS", 20)
    problem = make_problem(max(2, len(rows)), 5, d=6, precision=precision)
    rows = list(rows)
    problem = replace(problem, X=problem.X[rows], rows=Rows(np.zeros(len(rows))))
    trees, entries = sort(problem), entries_of(len(rows))
    np.testing.assert_allclose(dense.sum_matrices(trees, 2), problem.kernel(), **VALUE)
    found = np.split(dense.sum_by_depth(trees, entries, 2), trees.first[1:-1])
    for part, encoder, order in zip(found, problem.encoders, problem.orders, strict=True):
        bits = oracle.unpack_bits(encoder.encode(problem.X), order.key_bits)
        lcp = oracle.shared_prefix(bits, bits)
        expected = [entries[lcp == depth].sum() for depth in range(order.n_levels + 1)]
        scale = np.abs(entries).sum()
        np.testing.assert_allclose(part / scale, np.array(expected) / scale, **VALUE)


def test_sorted_trees_are_the_linked_ones():
    problem = make_problem(50, 5, precision=6)
    found, linked = sort(problem), dense.stack_trees(problem.forest(CpuEngine()).trees)
    for part, expected in zip(found, linked, strict=True):
        np.testing.assert_array_equal(part, expected)


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr(dense, "ROWS", 16)
    problem, entries = make_problem(70, 21, precision=6), entries_of(70)
    both = [sort(problem, k) for k in (1, 3)]
    for part, other in zip(*both, strict=True):
        np.testing.assert_array_equal(part, other)
    for work in (dense.sum_matrices, lambda trees, k: dense.sum_by_depth(trees, entries, k)):
        np.testing.assert_array_equal(*(work(both[0], k) for k in (1, 3)))
