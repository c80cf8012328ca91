"""The engine without compiled kernels: structure and messages are those of the kernels."""

import numpy as np
import pytest
from hypothesis import given

from problems import make_problem, problems
from tolerances import VALUE
from triegp.encoding import pack_codes
from triegp.encoding.encoder import BitEncoder
from triegp.encoding.grids import encode_grids
from triegp.engines import CpuEngine, PlainEngine
from triegp.tree import build_trie, condition, predict, trie_keys


@given(problems)
def test_tries_and_posteriors_have_the_same_bits(problem):
    check(problem)


@pytest.mark.parametrize("precision", [(3, 2), (32, 32, 7), (32,) * 5])
@pytest.mark.parametrize("n", [1, 2, 3, 300])
def test_sizes_and_long_keys(n, precision):
    check(make_problem(n, n=n, precision=precision))


def check(problem):
    kernels, plain = CpuEngine(), PlainEngine()
    tries = [build_trie(problem.codes, problem.order, engine=one) for one in (kernels, plain)]
    np.testing.assert_array_equal(tries[0].row_idx, tries[1].row_idx)
    for name in ("depth", "starts", "stops", "spine", "root"):
        here, there = (getattr(trie.links, name) for trie in tries)
        np.testing.assert_array_equal(here, there)
    n = problem.codes.n_rows
    for name in ("left", "right"):
        here, there = (getattr(trie.links, name)[1:] for trie in tries)
        np.testing.assert_array_equal(here, there)
    np.testing.assert_array_equal(*(trie.links.order[: n - 1] for trie in tries))
    np.testing.assert_array_equal(*(trie_keys(trie, problem.codes) for trie in tries))
    variance = problem.row_noise()
    pairs = []
    for trie, engine in zip(tries, (kernels, plain), strict=True):
        m, s = engine.leaves(trie.row_idx, problem.y, variance, np.dtype(float))
        sums = engine.inside(trie.links, problem.order.levels, m, s)
        rest = engine.outside(trie.links, problem.order.levels, m, s)
        used = np.delete(np.arange(2 * n), n)
        pairs.append((sums, [part[used] for part in (m, s, *rest)]))
    for here, there in zip(pairs[0][1], pairs[1][1], strict=True):
        np.testing.assert_array_equal(here, there)
    assert pairs[0][0].n_terms == pairs[1][0].n_terms
    np.testing.assert_allclose(pairs[0][0][:2], pairs[1][0][:2], **VALUE)
    posteriors = [condition(trie, problem.codes, problem.order, problem.y, 0.1) for trie in tries]
    for var in (False, True):
        found = [predict(one, problem.new, var=var) for one in posteriors]
        np.testing.assert_array_equal(found[0].mean, found[1].mean)
        if var:
            np.testing.assert_array_equal(found[0].var, found[1].var)
        else:
            assert found[1].var is None


@pytest.mark.parametrize("outside", ["clip", "unrelated"])
def test_codes_are_those_of_the_kernels(outside):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    encoder = BitEncoder(scaling="ecdf", precision=[3, 8, 12, 1], outside=outside).fit(X)
    grids = [encoder.with_shift(rng.random(4)) for _ in range(3)]
    new = 1.5 * rng.normal(size=(50, 4))
    pairs = (encode_grids(grids, new, engine) for engine in (CpuEngine(), PlainEngine()))
    for here, there in zip(*pairs, strict=True):
        np.testing.assert_array_equal(here.packed, there.packed)
        if outside == "unrelated":
            np.testing.assert_array_equal(here.unrelated, there.unrelated)
        else:
            assert here.unrelated is None
            assert there.unrelated is None


def test_rows_with_equal_keys_merge_in_pairs():
    codes = pack_codes(np.array([[1]] * 5 + [[2]] * 6), precision=2)
    problem = make_problem(0, n=11, precision=(2,))
    bits = problem.order.key_bits
    plain, kernels = PlainEngine(), CpuEngine()
    row_idx, lcp = plain.sort_rows(codes.packed, bits)
    np.testing.assert_array_equal(row_idx, kernels.sort_rows(codes.packed, bits)[0])
    here, there = (one.link(lcp, bits.size, np.zeros(1, np.int64)) for one in (plain, kernels))
    np.testing.assert_array_equal(here.order[:-1], there.order[:-1])
    np.testing.assert_array_equal(here.left[1:], there.left[1:])
