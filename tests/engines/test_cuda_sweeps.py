"""The CUDA engine's sweeps, searches and blocks against the CPU engine, one by one.

Without a card they run in numba's simulator. Values agree to `tolerances.ENGINES` of the
sum of absolute terms if the operation on absolute values gives it, and else of the largest value;
integers agree exactly.
"""

import numpy as np
import pytest

from problems import make_problem
from tolerances import ENGINES, ENGINES_SINGLE
from triegp.engines import CpuEngine, Links, Tree
from triegp.engines.cuda import blocks, card, search, sweeps, walks

CPU = CpuEngine(n_threads=1)

PROBLEMS = {
    "one row": {"n": 1},
    "two rows": {"n": 2, "precision": (5,)},
    "spread": {"n": 45, "precision": (4, 3)},
    "duplicates": {"n": 41, "precision": (2, 2), "shape": "twins"},
    "all equal": {"n": 33, "precision": (5,), "shape": "equal"},
    "one chain": {"n": 30, "precision": (32, 9), "shape": "chain"},
    "135 bits": {"n": 40, "precision": (31, 32, 32, 32, 8), "shape": "clustered"},
}
LARGE = {  # for a card only: blocks that wait for each other
    "many blocks": {"n": 300_007, "precision": (9, 9, 8), "shape": "twins"},
    "many equal": {"n": 100_003, "precision": (3, 2)},
}


class Case:
    """One trie, as both engines hold it, and what they are asked about."""

    def __init__(self, name, dtype=np.float64):
        problem = make_problem(len(name), nugget="bit", **(PROBLEMS | LARGE)[name])
        packed, bits = problem.codes.packed, problem.order.key_bits
        rng = problem.rng
        self.n, self.n_levels = problem.n, bits.size
        self.levels = problem.order.levels
        self.row_idx, self.lcp = CPU.sort_rows(packed, bits)
        self.keys = CPU.keys(packed, bits, self.row_idx)
        self.cpu = CPU.link(self.lcp, bits.size, np.zeros(1, np.int64))
        self.links = on_card(self.cpu, bits.size)
        new = problem.new.packed
        new_idx, self.new_lcp = CPU.sort_rows(new, bits)
        self.new_idx, self.new_keys = new_idx, CPU.keys(new, bits, new_idx)
        with np.errstate(divide="ignore"):  # rows of weight 0
            variance = problem.row_noise() / problem.weight
        self.m, self.s = CPU.leaves(self.row_idx, problem.y, variance, np.dtype(dtype))
        self.m[self.n :] = self.s[self.n :] = np.nan  # must not be read
        self.x = rng.standard_normal((self.n, 3))
        self.z = rng.standard_normal((self.n, 3))
        self.rng = rng

    def leaf_messages(self):
        return self.m.copy(), self.s.copy()

    def messages(self):
        """Inside messages, by the CPU engine."""
        m, s = self.leaf_messages()
        CPU.inside(self.cpu, self.levels, m, s)
        return m, s


def on_card(links, n_levels):
    """The same trie as the card holds it: nodes bucketed by depth, equal keys' by their rank."""
    n = links.n_rows
    node = np.arange(1, n)
    depth = links.depth[n + 1 :].astype(np.int64)
    rank = np.where(depth < n_levels, depth, n_levels + 2**30 - (node & -node))
    places = np.argsort(-rank, kind="stable")
    ends = np.flatnonzero(np.diff(rank[places], append=-1))
    stops = ends + 1 if n > 1 else np.zeros(0, np.int64)
    arrays = (links.depth, links.left, links.right, node[places])
    depth, left, right, order = (card.to_device(a, np.int32) for a in arrays)
    starts = np.append(0, stops)[:-1] if n > 1 else stops
    none = card.xp.zeros(0, np.int32)
    return Links(depth, left, right, order, starts, stops, none, links.root)


@pytest.fixture(
    scope="module",
    params=[*PROBLEMS, *(pytest.param(name, marks=pytest.mark.card) for name in LARGE)],
)
def case(request):
    return Case(request.param)


def device(*arrays):
    return tuple(card.to_device(a.copy()) for a in arrays)


def check(got, expected, scale=None, tolerance=ENGINES):
    """Same dtype, same shape, same infinities, and else close in relation to scale."""
    got, expected = card.to_host(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(got[~finite], expected[~finite])
    largest = np.abs(expected[finite]).max(initial=0.0)
    limit = np.broadcast_to(largest if scale is None else scale, got.shape)[finite] * tolerance
    assert (np.abs(got[finite] - expected[finite]) <= limit).all()


def written(messages, n):
    """What a sweep wrote: of 2n entries, all but that of node 0, which does not exist."""
    return np.delete(card.to_host(messages), n)


def test_every_problem_is_what_it_says():
    assert Case("duplicates").lcp.max() == 4
    assert Case("all equal").links.starts.size == 6  # 33 rows: 2, 4, ..., 64 at a time
    assert Case("135 bits").keys.shape[1] == 3
    assert np.isinf(Case("spread").s[:45]).any()
    widths = Case("spread").links.stops - Case("spread").links.starts
    assert 3 * widths.max() > card.THREADS * walks.MOST_SIMULATED or not card.SIMULATED


# Messages


def test_inside(case):
    m, s = case.leaf_messages()
    m_card, s_card = device(m, s)
    expected = CPU.inside(case.cpu, case.levels, m, s)
    got = sweeps.inside(case.links, case.levels, m_card, s_card)
    check(written(m_card, case.n), written(m, case.n))
    check(written(s_card, case.n), written(s, case.n))
    np.testing.assert_allclose(got[:2], expected[:2], rtol=ENGINES, atol=ENGINES * case.n)
    assert got.n_terms == expected.n_terms
    assert isinstance(got.n_terms, int)


def test_inside_of_float32_messages():
    case = Case("spread", np.float32)
    m, s = case.leaf_messages()
    m_card, s_card = device(m, s)
    expected = CPU.inside(case.cpu, case.levels, m, s)
    got = sweeps.inside(case.links, case.levels, m_card, s_card)
    check(written(m_card, case.n), written(m, case.n), tolerance=ENGINES_SINGLE)
    check(written(s_card, case.n), written(s, case.n), tolerance=ENGINES_SINGLE)
    np.testing.assert_allclose(
        got[:2], expected[:2], rtol=ENGINES_SINGLE, atol=ENGINES_SINGLE * case.n
    )
    for ours, theirs in zip(
        sweeps.outside(case.links, case.levels, m_card, s_card),
        CPU.outside(case.cpu, case.levels, m, s),
        strict=True,
    ):
        check(ours, theirs, tolerance=ENGINES_SINGLE)
    check(
        sweeps.solve(case.links, case.levels, s_card, card.to_device(case.x)),
        CPU.solve(case.cpu, case.levels, s, case.x),
        tolerance=ENGINES_SINGLE,
    )


def test_nothing_said():
    case = Case("spread")
    m, s = device(case.m, np.full(2 * case.n, np.inf))
    assert sweeps.inside(case.links, case.levels, m, s) == (0.0, 0.0, 0)


def test_a_square_beyond_float64_is_inf():
    case = Case("two rows")
    m, s = device(np.array([1e200, -1e200, 0.0, 0.0]), np.full(4, 0.1))
    assert sweeps.inside(case.links, case.levels, m, s).square == np.inf


def test_the_same_bits_again(case):
    runs = []
    for _ in range(2):
        m, s = device(*case.leaf_messages())
        sums = sweeps.inside(case.links, case.levels, m, s)
        runs.append((sums, written(m, case.n), written(s, case.n)))
    assert runs[0][0] == runs[1][0]
    for first, second in zip(runs[0][1:], runs[1][1:], strict=True):
        np.testing.assert_array_equal(first, second)


def test_outside_and_leave_out(case):
    m, s = case.messages()
    expected = CPU.outside(case.cpu, case.levels, m, s)
    got = sweeps.outside(case.links, case.levels, *device(m, s))
    for ours, theirs in zip(got, expected, strict=True):
        check(ours, theirs)
    np.testing.assert_array_equal(card.to_host(got[2]), expected[2])
    kept = np.where(case.rng.random(case.n) < 0.5, np.inf, 0.3)
    for stays in (kept, np.array([np.inf])):
        ours = sweeps.leave_out(case.links, case.levels, got, *device(m, stays))
        for one, two in zip(
            ours, CPU.leave_out(case.cpu, case.levels, expected, m, stays), strict=True
        ):
            check(one, two)


# Operators


def test_product(case):
    expected = CPU.product(case.cpu, case.levels, case.x)
    terms = CPU.product(case.cpu, case.levels, np.abs(case.x))
    check(sweeps.product(case.links, case.levels, *device(case.x)), expected, terms)
    one = sweeps.product(case.links, card.to_device(case.levels), *device(case.x[:, :1]))
    check(one, expected[:, :1], terms[:, :1])


def test_path_sums(case):
    x = case.x[:, 0].copy()
    got = sweeps.path_sums(case.links, case.levels, *device(x))
    expected = CPU.path_sums(case.cpu, case.levels, x)
    terms = CPU.path_sums(case.cpu, case.levels, np.abs(x))
    for ours, theirs, scale in zip(got, expected, terms, strict=True):
        check(written(ours, case.n), written(theirs, case.n), written(scale, case.n))


def test_solve_and_whiten(case):
    _, s = case.messages()
    x, s_card = device(case.x, s)
    check(
        sweeps.solve(case.links, case.levels, s_card, x),
        CPU.solve(case.cpu, case.levels, s, case.x),
    )
    check(
        sweeps.whiten(case.links, case.levels, s_card, x),
        CPU.whiten(case.cpu, case.levels, s, case.x),
    )
    np.testing.assert_array_equal(card.to_host(x), case.x)  # not changed


def test_level_products(case):
    expected = CPU.level_products(case.cpu, case.x, case.z)
    terms = CPU.level_products(case.cpu, np.abs(case.x), np.abs(case.z))
    got = sweeps.level_products(case.links, *device(case.x, case.z))
    check(got, expected, terms)


# The joint distribution of f at chosen leaves


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_contract(case, share):
    m, s = case.messages()
    keep = case.rng.random(case.n) < share
    keep[case.n // 2] = True
    chosen = np.where(keep, np.cumsum(keep) - 1, -1).astype(np.int32)
    n_chosen = int(keep.sum())
    expected = CPU.contract(case.cpu, case.levels, m, s, chosen, n_chosen)
    got = sweeps.contract(case.links, case.levels, *device(m, s), chosen, n_chosen)
    check(got, expected)


def test_covariance_product_and_draw(case):
    m, s = case.messages()
    every = np.arange(case.n, dtype=np.int32)
    edges = CPU.contract(case.cpu, case.levels, m, s, every, case.n)
    check(
        sweeps.covariance_product(case.links, *device(edges, case.x)),
        CPU.covariance_product(case.cpu, edges, case.x),
    )
    normals = case.rng.standard_normal((2 * case.n, 2))
    check(
        sweeps.draw(case.links, *device(edges, normals)), CPU.draw(case.cpu, edges, normals.copy())
    )


# One launch for a whole walk, as on a card


@pytest.mark.skipif(not card.SIMULATED, reason="on a card all other tests do this")
def test_a_walk_in_one_launch(monkeypatch):
    monkeypatch.setattr(walks, "FUSED", True)
    case = Case("duplicates")
    _, s = case.messages()
    check(
        sweeps.solve(case.links, case.levels, s, case.x),
        CPU.solve(case.cpu, case.levels, s, case.x),
    )


# Search


def test_locate_and_predict(case):
    query = np.concatenate([case.new_keys, case.keys[::5]])
    query = query[np.lexsort(query.T[::-1])]
    row_idx = case.rng.permutation(len(query)).astype(np.int32)
    expected = CPU.locate(case.cpu, case.keys, query, row_idx)
    got = search.locate(case.links, *device(case.keys, query, row_idx))
    for name in ("row_idx", "node", "above", "leaves_at"):
        ours = card.to_host(getattr(got, name))
        assert ours.dtype == np.int32
        np.testing.assert_array_equal(ours, getattr(expected, name))
    inside = case.messages()
    outside = CPU.outside(case.cpu, case.levels, *inside)[:2]
    known = (device(*inside), device(*outside))
    mean, var = CPU.predict(case.cpu, case.levels, expected, inside, outside, True)
    got_mean, got_var = search.predict(case.links, case.levels, got, *known, True)
    check(got_mean, mean)
    check(got_var, var)
    again, none = search.predict(case.links, case.levels, got, *known, False)
    assert none is None
    np.testing.assert_array_equal(card.to_host(again), card.to_host(got_mean))


def test_merge_keys(case):
    for added in (case.new_keys, case.keys[-2:], case.new_keys[:0]):  # some or all of them known
        lcp = lcp_of(added, case.n_levels)
        given = (case.keys, case.lcp, added, lcp)
        expected = CPU.merge_keys(*given, case.n_levels)
        got = search.merge_keys(*device(*given), case.n_levels)
        for ours, theirs in zip(got, expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(card.to_host(ours), theirs)


def lcp_of(keys, n_levels):
    """The lcp of sorted keys."""
    bits = np.unpackbits(
        keys.astype(">u8").view(np.uint8).reshape(len(keys), 8 * keys.shape[1]), axis=1
    )
    differ = (bits[1:] != bits[:-1])[:, :n_levels]
    shared = np.where(differ.any(axis=1), differ.argmax(axis=1), n_levels)
    return np.append(-1, shared).astype(np.int32)[: len(keys)]


# Memory


def test_columns_that_do_not_fit_are_refused_with_their_size(monkeypatch):
    case = Case("spread")
    monkeypatch.setattr(card, "SMALL_BYTES", 0)
    needed = 2 * case.n * 3 * 8
    monkeypatch.setattr(card, "free_bytes", lambda: needed)
    check(
        sweeps.product(case.links, case.levels, case.x), CPU.product(case.cpu, case.levels, case.x)
    )
    monkeypatch.setattr(card, "free_bytes", lambda: needed - 1)
    with pytest.raises(MemoryError, match=f"3 columns of {case.n} rows need .* GB on the device"):
        sweeps.product(case.links, case.levels, case.x)


# Blocks


def test_block_kernels():
    cases = [Case(name) for name in ("spread", "spread", "duplicates")]
    n = min(case.n for case in cases)
    rng = np.random.default_rng(0)
    trees, trees_on_card = [], []
    for case in cases:
        lcp = lcp_of(case.keys[:n], case.n_levels)
        links = CPU.link(lcp, case.n_levels, np.zeros(1, np.int64))
        row_idx = rng.permutation(n).astype(np.int32)
        trees.append(Tree(row_idx, links, case.levels))
        trees_on_card.append(
            Tree(*device(row_idx), on_card(links, case.n_levels), card.to_device(case.levels))
        )
    members = np.append(rng.permutation(n), [-1] * (-n % 6)).astype(np.int32).reshape(-1, 6)
    members[0, 4:] = -1
    expected = CPU.block_kernels(trees, members)
    check(blocks.block_kernels(trees_on_card, members), expected)
    assert (expected != 0).any()


def test_a_block_of_one_row():
    case = Case("one row")
    members = np.array([[0, -1]], np.int32)
    trees = [Tree(case.row_idx, case.cpu, case.levels)]
    on = [replace_links(trees[0], case.links)]
    check(blocks.block_kernels(on, members), CPU.block_kernels(trees, members))


def replace_links(tree, links):
    return tree._replace(row_idx=card.to_device(tree.row_idx), links=links)
