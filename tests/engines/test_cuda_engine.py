"""The CUDA engine against the CPU engine: sorting, links, likelihoods, batches, many trees.

Without a card the kernels run in numba's simulator, a tile being 16 rows there. Structure agrees
exactly, values to `tolerances.ENGINES` of the sum of absolute terms, or of the largest of many.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from numba import types

from problems import make_problem
from tolerances import ENGINES, ENGINES_SINGLE_SUMS
from triegp.engines import CpuEngine, Tree
from triegp.engines.cuda import CudaEngine, card, engine, groves, keys, plan
from triegp.engines.records import Candidate
from triegp.tree import BitOrder, build_trie
from triegp.tree.rows import add_noise, check_rows

CPU, CUDA = CpuEngine(n_threads=1), CudaEngine()
DOUBLE, SINGLE = np.dtype(np.float64), np.dtype(np.float32)
RELATIVE = {DOUBLE: ENGINES, SINGLE: ENGINES_SINGLE_SUMS}
FIRST = np.zeros(1, np.int64)  # cuts

PROBLEMS = {
    "one row": {"n": 1},
    "two tiles": {"n": 20, "precision": (4, 3)},
    "duplicates": {"n": 45, "precision": (2, 2), "shape": "twins"},
    "all equal": {"n": 37, "precision": (5,), "shape": "equal"},
    "one chain": {"n": 34, "precision": (32, 9), "shape": "chain"},
    "135 bits": {"n": 36, "precision": (31, 32, 32, 32, 8), "shape": "clustered"},
}
LARGE = {
    "large": {"n": 300_007, "precision": (8,) * 11},
    "large, few keys": {"n": 200_003, "precision": (2, 2, 2)},
    "large, twins": {"n": 100_003, "precision": (9, 9, 8), "shape": "twins"},
    "wide": {"n": 20_011, "precision": (8,) * 200},
}
NAMES = [*PROBLEMS, *(pytest.param(name, marks=pytest.mark.card) for name in LARGE)]
SOME = ["duplicates", "135 bits", *NAMES[len(PROBLEMS) :]]


def problem_of(name):
    return make_problem(len(name), **(PROBLEMS | LARGE)[name])


def rows_of(problem):
    measured = check_rows(
        problem.y, n_rows=problem.n, known_noise=problem.known, sample_weight=problem.weight
    )
    return add_noise(measured, problem.order, problem.noise)


def orders_of(problem, count):
    rng, q = np.random.default_rng(problem.n), problem.order.n_bits
    return [BitOrder.from_phi(3 * rng.standard_normal(q)) for _ in range(count)]


def close(found, expected, dtype=DOUBLE):
    found = np.asarray(found if isinstance(found, list) else card.to_host(found))
    expected = np.asarray(expected)
    scale = max(np.abs(expected).max(initial=0.0), 1e-300)
    np.testing.assert_allclose(found, expected, rtol=0, atol=RELATIVE[dtype] * scale)


@pytest.fixture
def long_tiles(monkeypatch):
    """After the leaves, one tile per member, however many items it has."""
    monkeypatch.setattr(plan, "WORST", 0.0)
    monkeypatch.setattr(plan, "ENOUGH", 1)


def check_links(problem):
    expected = build_trie(problem.codes, problem.order, engine=CPU)
    row_idx, lcp = CUDA.sort_rows(problem.codes.packed, problem.order.key_bits)
    assert np.array_equal(card.to_host(row_idx), expected.row_idx)
    assert np.array_equal(card.to_host(lcp), expected.links.lcp)
    links = CUDA.link(lcp, expected.n_levels, FIRST)
    for array in ("depth", "left", "right"):
        found = card.to_host(getattr(links, array))
        assert np.array_equal(found[1:], getattr(expected.links, array)[1:]), array
    assert (links.root, links.n_levels) == (expected.links.root, expected.n_levels)
    below = np.full(2 * problem.n, -1)
    for bucket, (start, stop) in enumerate(zip(links.starts, links.stops, strict=True)):
        nodes = card.to_host(links.order)[start:stop]
        for children in (expected.links.left[nodes], expected.links.right[nodes]):
            assert (below[children] < bucket).all()
        below[problem.n + nodes] = bucket
    assert (below[problem.n + 1 :] >= 0).all()
    return expected, links


@pytest.mark.parametrize("name", NAMES)
def test_the_same_trie(name):
    check_links(problem_of(name))


@pytest.mark.parametrize("name", SOME)
def test_the_same_trie_with_long_tiles(name, long_tiles):
    problem = problem_of(name)
    _, links = check_links(problem)
    assert [stage.long for stage in links.plan.stages] == [False, True][
        : 1 + (problem.n > card.TILE)
    ]


def check_likelihood(problem, dtype):
    rows = rows_of(problem)
    assert np.isinf(rows.variance).any() or problem.n == 1  # rows of weight 0
    levels = problem.order.levels
    trie = build_trie(problem.codes, problem.order, engine=CPU)
    links = CUDA.link(trie.links.lcp, trie.n_levels, FIRST)
    given = (levels, trie.row_idx, rows.y, rows.variance, dtype)
    sums, adjoints = CPU.evaluate(trie.links, *given[:-1], DOUBLE, True)
    found, gradient = CUDA.evaluate(links, *given, True)
    assert found.n_terms == sums.n_terms
    close([found.nll, found.log_det, found.square], [sums.nll, sums.log_det, sums.square], dtype)
    close(gradient.by_level, adjoints.by_level, dtype)
    close(gradient.by_var, adjoints.by_var, dtype)
    close(gradient.by_mean, adjoints.by_mean, dtype)
    again = CUDA.evaluate(links, *given, True)
    assert again[0] == found
    assert np.array_equal(again[1].by_level, gradient.by_level)
    alone, nothing = CUDA.evaluate(links, *given, False)
    assert alone == found
    assert nothing is None


@pytest.mark.parametrize("name", NAMES)
def test_likelihood_and_gradient(name):
    check_likelihood(problem_of(name), DOUBLE)


@pytest.mark.parametrize("name", ["135 bits", NAMES[-2]])
def test_float32(name):
    check_likelihood(problem_of(name), SINGLE)


@pytest.mark.parametrize("name", SOME)
def test_likelihood_with_long_tiles(name, long_tiles):
    check_likelihood(problem_of(name), DOUBLE)


@pytest.mark.parametrize("name", SOME)
def test_batches(name):
    problem = problem_of(name)
    rows = rows_of(problem)
    mean = np.array([0.3])
    other = problem.codes.packed[::-1].copy()
    candidates = [
        Candidate(packed, order.key_bits, order.levels, y, variance)
        for order, packed, y, variance in zip(
            orders_of(problem, 3),
            (problem.codes.packed, problem.codes.packed, other),
            (rows.y, rows.y[::-1].copy(), rows.y),
            (rows.variance, mean, mean),
            strict=True,
        )
    ]
    expected = CPU.evaluate_many(candidates, DOUBLE, True, rows=True)
    found = CUDA.evaluate_many(candidates, DOUBLE, True, rows=True)
    for one, other in zip(found, expected, strict=True):
        close([one.sums.nll, one.by_noise], [other.sums.nll, other.by_noise])
        close(one.by_level, other.by_level)
        close(one.by_var, other.by_var)
    (alone,) = CUDA.evaluate_many(candidates[1:2], DOUBLE, True)
    assert alone.sums == found[1].sums
    assert np.array_equal(alone.by_level, found[1].by_level)
    assert alone.by_var is None
    (value,) = CUDA.evaluate_many(candidates[1:2], DOUBLE, False)
    assert value.sums == found[1].sums
    assert value.by_level is None


@pytest.mark.parametrize(("n_bits", "n_members"), [(62, 3), (63, 2), (64, 1), (130, 5)])
def test_words_with_the_members_number_in_front(n_bits, n_members):
    rng = np.random.default_rng(n_bits)
    packed = rng.integers(0, 256, (n_members, 9, -(-n_bits // 8)), dtype=np.uint8)
    packed[:, :, 0] = 0  # many share their first bits
    bits = np.array([rng.permutation(n_bits) for _ in range(n_members)])
    found = keys.sort_batch(packed, bits)
    row_idx, rank = card.to_host(found.row_idx), card.to_host(found.rank)
    for member in range(n_members):
        expected = CPU.sort_rows(packed[member], bits[member])
        part = slice(9 * member, 9 * member + 9)
        assert np.array_equal(row_idx[part], expected[0])
        assert np.array_equal(np.minimum(rank[part], n_bits), expected[1])


def test_a_gradient_that_is_not_there():
    problem = problem_of("two tiles")
    order = problem.order
    huge = np.full(problem.n, 1e200)
    huge[0] = -1e200
    candidate = Candidate(
        problem.codes.packed, order.key_bits, order.levels, huge, np.array([1e-5])
    )
    (found,) = CUDA.evaluate_many([candidate], DOUBLE, True)
    assert found.sums.square == np.inf
    assert found.by_level is None


def check_trees(problem, n_columns):
    cpu, cuda = [], []
    for order in orders_of(problem, 2):
        trie = build_trie(problem.codes, order, engine=CPU)
        links = CUDA.link(trie.links.lcp, trie.n_levels, FIRST)
        cpu.append(Tree(trie.row_idx, trie.links, order.levels))
        cuda.append(Tree(trie.row_idx, links, order.levels))
    x, z = problem.rng.standard_normal((2, problem.n, n_columns))
    close(CUDA.sum_products(cuda, x), CPU.sum_products(cpu, x))
    found = CUDA.sum_level_products(cuda, x, z)
    for one, other in zip(found, CPU.sum_level_products(cpu, x, z), strict=True):
        close(one, other)


@pytest.mark.parametrize("name", SOME)
def test_many_trees(name):
    check_trees(problem_of(name), 6)


def test_one_column():
    check_trees(problem_of("two tiles"), 1)


def test_many_trees_with_long_tiles(long_tiles):
    check_trees(problem_of("duplicates"), 5)


def test_how_trees_are_batched_makes_no_difference(monkeypatch):
    problem = problem_of("two tiles")
    trees = []
    for order in orders_of(problem, 5):
        row_idx, lcp = CUDA.sort_rows(problem.codes.packed, order.key_bits)
        trees.append(Tree(row_idx, CUDA.link(lcp, order.n_levels, FIRST), order.levels))
    x = problem.rng.standard_normal((problem.n, 3))
    together = card.to_host(CUDA.sum_products(trees, x))
    found = CUDA.sum_level_products(trees, x, x)
    monkeypatch.setattr(groves, "GROVE_BYTES", 2 * problem.n * (40 + 10 * 6))
    assert np.array_equal(card.to_host(CUDA.sum_products(trees, x)), together)
    for one, other in zip(CUDA.sum_level_products(trees, x, x), found, strict=True):
        assert np.array_equal(one, other)


def test_what_is_beside_a_candidate_makes_no_difference():
    """Not even a chain that is too deep for tiles."""
    n, q = 4 * card.TILE, 4 * card.TILE + 8
    rng = np.random.default_rng(0)
    chain = np.packbits(np.tri(n, q, dtype=np.uint8), axis=1)
    scattered = rng.integers(0, 256, chain.shape, dtype=np.uint8)
    order = BitOrder.from_phi(-np.arange(q) / q)
    y = rng.standard_normal(n)
    candidates = [
        Candidate(packed, order.key_bits, order.levels, y, np.array([0.1]))
        for packed in (scattered, chain, scattered[::-1].copy())
    ]
    found = CUDA.evaluate_many(candidates, DOUBLE, True)
    for one, other in zip(found, CPU.evaluate_many(candidates, DOUBLE, True), strict=True):
        close(one.by_level, other.by_level)
    for candidate, beside in zip(candidates, found, strict=True):
        (alone,) = CUDA.evaluate_many([candidate], DOUBLE, True)
        assert alone.sums == beside.sums
        assert np.array_equal(alone.by_level, beside.by_level)
    _, lcp = CUDA.sort_rows(chain, order.key_bits)
    assert any(stage.long for stage in CUDA.link(lcp, order.n_levels, FIRST).plan.stages)


def test_too_large_for_the_card(monkeypatch):
    problem = problem_of("two tiles")
    monkeypatch.setattr(engine, "free_bytes", lambda: 1000)
    monkeypatch.setattr(engine, "SMALL_BYTES", 0)
    with pytest.raises(MemoryError, match=r"20 rows need .* GB on the device"):
        CUDA.sort_rows(problem.codes.packed, problem.order.key_bits)
    candidate = Candidate(
        problem.codes.packed, problem.order.key_bits, problem.order.levels, problem.y, np.ones(1)
    )
    with pytest.raises(MemoryError, match="fewer rows or the CPU engine"):
        CUDA.evaluate_many([candidate], DOUBLE, True)


def test_tuples_are_handed_over_flat():
    """As numba compiles them: an empty one takes no room."""
    array = np.zeros((2, 3), np.float32)
    names = ("flags", "size", "itemsize", "shape", "strides", "dtype", "ndim")
    facts = {name: getattr(array, name) for name in names}
    on_card = SimpleNamespace(**facts, data=SimpleNamespace(ptr=77))
    words = [0, 0, 6, 4, 77, 2, 3, 12, 4]
    flat = []
    kind = card.kernel(lambda: None)._hand_over((True, (), (on_card, 5), on_card), flat)
    assert flat == [1, *words, 5, *words]
    assert kind == (int, (), ((SINGLE, 2), int), (SINGLE, 2))
    found = [card._type(one) for one in kind]
    matrix = types.Array(types.float32, 2, "C")
    assert found == [types.int64, types.Tuple(()), types.Tuple((matrix, types.int64)), matrix]
