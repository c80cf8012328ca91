import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from problems import make_problem, problems, take
from triegp.encoding import Codes, pack_codes
from triegp.engines import CpuEngine
from triegp.engines.cpu import keys as rows
from triegp.tree import (
    BitOrder,
    build_trie,
    insert_rows,
    random_bits,
    rebuild_trie,
    trie_keys,
    uniform_weights,
)


def check_structure(trie, bits):
    """The trie against sorting and comparing the key bits themselves."""
    n = len(bits)
    expected = np.lexsort(bits.T[::-1]) if bits.shape[1] else np.arange(n)
    np.testing.assert_array_equal(trie.row_idx, expected)
    ranked = bits[expected]
    lcp = [oracle.shared_prefix(ranked[[i - 1]], ranked[[i]])[0, 0] for i in range(1, n)]
    np.testing.assert_array_equal(trie.links.lcp[1:], lcp)
    assert trie.n_leaves == len(np.unique(bits, axis=0))
    # Every node covers the leaves between its neighbours of smaller lcp, split at its separator.
    links = trie.links
    first, last = np.arange(2 * n), np.arange(2 * n)
    pieces = [links.order[a:b] for a, b in zip(links.starts, links.stops, strict=True)]
    seen = np.concatenate([*pieces, links.spine])
    assert sorted(seen) == list(range(1, n))
    for node in seen:
        left, right = links.left[node], links.right[node]
        assert last[left] == node - 1
        assert first[right] == node
        assert links.depth[left] >= links.depth[n + node] <= links.depth[right]
        first[n + node], last[n + node] = first[left], last[right]
    assert (first[links.root], last[links.root]) == (0, n - 1)


@given(problems, st.integers(0, 100))
def test_structure_for_any_cut(problem, seed):
    rng = np.random.default_rng(seed)
    cuts = np.unique(np.append(0, rng.integers(0, problem.n, rng.integers(0, 6))))
    check_structure(build_trie(problem.codes, problem.order, cuts=cuts), problem.bits)


@given(problems)
def test_keys_are_the_bits(problem):
    trie = build_trie(problem.codes, problem.order)
    keys = trie_keys(trie, problem.codes)
    unpacked = np.unpackbits(keys.astype(">u8").view(np.uint8), axis=1)
    levels = problem.order.n_levels
    np.testing.assert_array_equal(unpacked[:, :levels], problem.bits[trie.row_idx])
    assert not unpacked[:, levels:].any()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("clustered", [False, True])
def test_large_sort_takes_the_parallel_path(threads, clustered):
    rng = np.random.default_rng(3)
    n = 2 * rows.ONE_GO + 77
    packed = rng.integers(0, 256, (n, 12), dtype=np.uint8)
    if clustered:  # ties over many chunks, long runs, duplicates
        packed[:, 1:] = rng.integers(0, 3, (n, 11), dtype=np.uint8)[:, :1]
        packed[: n // 3, 0] = 7
    codes = Codes(packed, np.full(12, 8))
    order = BitOrder.from_weights(rng.permutation(96), uniform_weights(96))
    trie = build_trie(codes, order, engine=CpuEngine(n_threads=threads))
    bits = oracle.unpack_bits(codes, order.key_bits)
    expected = np.lexsort(bits.T[::-1])
    np.testing.assert_array_equal(trie.row_idx, expected)
    differ = bits[expected][1:] != bits[expected][:-1]
    lcp = np.where(differ.any(axis=1), differ.argmax(axis=1), order.n_levels)
    np.testing.assert_array_equal(trie.links.lcp[1:], lcp)
    keys = trie_keys(trie, codes)
    unpacked = np.unpackbits(keys.astype(">u8").view(np.uint8), axis=1)
    np.testing.assert_array_equal(unpacked[:, : order.n_levels], bits[expected])
    assert not unpacked[:, order.n_levels :].any()


@given(problems, st.integers(0, 1000))
def test_rebuild_equals_build(problem, seed):
    rng = np.random.default_rng(seed)
    trie = build_trie(problem.codes, problem.order)
    bits = problem.order.bits.copy()
    start = rng.integers(0, bits.size)
    bits[start:] = rng.permutation(bits[start:])
    order = BitOrder.from_weights(bits, problem.order.weights, nugget=problem.order.nugget)
    again, fresh = rebuild_trie(trie, problem.codes, order), build_trie(problem.codes, order)
    np.testing.assert_array_equal(again.row_idx, fresh.row_idx)
    np.testing.assert_array_equal(again.links.lcp, fresh.links.lcp)
    np.testing.assert_array_equal(again.links.left[1:], fresh.links.left[1:])


def test_rebuild_sorts_only_below_the_change(monkeypatch):
    rng = np.random.default_rng(0)
    codes = pack_codes(rng.integers(0, 256, (40_000, 3)), 8)
    order = BitOrder.from_weights(random_bits([8, 8, 8], rng), uniform_weights(24))
    trie = build_trie(codes, order)
    bits = order.bits.copy()
    bits[-5:] = bits[-5:][::-1]
    moved = BitOrder.from_weights(bits, uniform_weights(24))
    fresh = build_trie(codes, moved)
    monkeypatch.setattr(rows, "sort_rows", None)  # a full sort would fail now
    np.testing.assert_array_equal(rebuild_trie(trie, codes, moved).row_idx, fresh.row_idx)
    same = BitOrder.from_weights(order.bits, uniform_weights(24, last=0.5))
    assert rebuild_trie(trie, codes, same) is trie  # other weights, no other key


def test_a_run_of_equal_keys_is_never_cut():
    codes = pack_codes([[1]] * 5 + [[2]] * 3 + [[3]], 2)
    order = BitOrder.from_weights([0, 1], [0.5, 0.5], nugget="bit")
    whole, cut = (build_trie(codes, order, cuts=np.array(c)) for c in ([0], [0, 2, 4, 6, 8]))
    np.testing.assert_array_equal(cut.links.starts, [0, 5, 8])
    np.testing.assert_array_equal(cut.links.left, whole.links.left)
    np.testing.assert_array_equal(cut.links.right, whole.links.right)


@given(problems, st.integers(1, 29))
def test_insert_equals_build(problem, split):
    split = min(split, problem.n)
    old = build_trie(take(problem.codes, slice(0, split)), problem.order)
    keys = trie_keys(old, take(problem.codes, slice(0, split)))
    trie, keys = insert_rows(old, keys, take(problem.codes, slice(split, None)))
    fresh = build_trie(problem.codes, problem.order)
    np.testing.assert_array_equal(trie.row_idx, fresh.row_idx)
    np.testing.assert_array_equal(trie.links.lcp, fresh.links.lcp)
    np.testing.assert_array_equal(keys, trie_keys(fresh, problem.codes))


def test_a_hundred_thousand_bits():
    rng = np.random.default_rng(0)
    precision = np.full(3125, 32)
    raw = rng.integers(0, 1 << 32, (4, 3125), dtype=np.uint64)
    raw = np.repeat(raw, 2, axis=0)
    raw[1, -1] ^= np.uint64(1)  # two rows that part in one bit only, two pairs of twins
    codes = pack_codes(raw, precision)
    order = BitOrder.from_weights(rng.permutation(100_000), uniform_weights(100_000), nugget="bit")
    trie = build_trie(codes, order)
    check_structure(trie, oracle.unpack_bits(codes, order.key_bits))


def test_one_row_and_no_key_bits():
    one = make_problem(0, n=1)
    assert build_trie(one.codes, one.order).links.root == 0
    bare = pack_codes([[0], [1], [1]], 1)  # the row nugget reads no bit at all
    trie = build_trie(bare, BitOrder.from_weights([0], [1.0]))
    np.testing.assert_array_equal(trie.links.lcp, [-1, 0, 0])
    assert trie.n_leaves == 1


def test_bad_input_is_named():
    problem = make_problem(0, n=6)
    codes, order = problem.codes, problem.order
    trie = build_trie(codes, order)
    with pytest.raises(ValueError, match="codes must have at least one row, got none"):
        build_trie(take(codes, slice(0, 0)), order)
    with pytest.raises(ValueError, match="order must have 5 bits as the codes do, got 2"):
        build_trie(codes, BitOrder.from_phi([0.0, 1.0]))
    outside = Codes(codes.packed, codes.precision, np.arange(6) == 4)
    with pytest.raises(ValueError, match="must lie inside the box, row 4 does not"):
        build_trie(outside, order)
    for cuts in ([1, 2], [0, 3, 3], [0, 6], [], [0.0]):
        with pytest.raises(ValueError, match="cuts must be rising integers from 0 to at most 5"):
            build_trie(codes, order, cuts=np.array(cuts))
    with pytest.raises(ValueError, match="must have 6 rows and 4 key bits as the trie has"):
        rebuild_trie(trie, take(codes, slice(0, 5)), order)
    with pytest.raises(ValueError, match="bits that the trie reads, at least 5, got 3"):
        insert_rows(trie, trie_keys(trie, codes), pack_codes([[1]], 3))
    with pytest.raises(ValueError, match="must lie inside the box, row 4 does not"):
        insert_rows(trie, trie_keys(trie, codes), outside)
    with pytest.raises(ValueError, match="codes must have the trie's 6 rows, got 5"):
        trie_keys(trie, take(codes, slice(0, 5)))
    with pytest.raises(ValueError, match="n_threads must be an integer, 0 or more, got -1"):
        CpuEngine(n_threads=-1)
