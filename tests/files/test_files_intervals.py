"""The rows of a mixture in a model file: intervals and their codes, there and back."""

import os
import pickle
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import triegp
from model_files import (
    MODELS,
    MORE,
    NEW,
    Y,
    array_at,
    assert_same,
    edited,
    parts_of,
    refused,
    small,
    through_file,
    write_parts,
)
from profiles import examples
from triegp.encoding.codes import pack_codes
from triegp.engines import CpuEngine
from triegp.files import mixture
from triegp.files.container import read_file
from triegp.files.intervals import pack_rows, recover_codes, unpack_rows
from triegp.tree import BitOrder, build_trie, condition
from triegp.tree.trie import trie_keys

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* are copies of others:UserWarning"),
    pytest.mark.filterwarnings("ignore:.* outside the training box:UserWarning"),
]


def condition_members(codes, precision, nuggets, rng):
    """Posteriors of members with random orders, whose weights are partly 0.

    codes: per member, (n, d); precision: per member, (d,).
    """
    found = []
    for own, widths, nugget in zip(codes, precision, nuggets, strict=True):
        n_bits = int(widths.sum())
        weights = rng.random(n_bits) * (rng.random(n_bits) < 0.7) + 1e-3 * (n_bits == 1)
        weights[rng.integers(n_bits)] += 1.0
        order = BitOrder.from_weights(
            rng.permutation(n_bits), weights / weights.sum(), nugget=nugget
        )
        packed = pack_codes(own, widths)
        y = rng.standard_normal(len(own))
        found.append(condition(build_trie(packed, order), packed, order, y, 0.1))
    return found


def make_problem(n, d, k, most, monotone, nuggets, seed, alike=False):
    """Codes of n rows in d features on k grids, and posteriors given them.

    monotone: codes of shifted grids, as encoders make them; otherwise any codes at all.
    """
    rng = np.random.default_rng(seed)
    precision = rng.integers(1, most + 1, (k, d))
    if alike:
        precision[:] = most
    values = rng.choice(rng.random(max(n // 2, 1)), (n, d))
    codes = []
    for widths in precision:
        shift = rng.random(d)
        cells = np.floor((values + shift) / 2 * 2.0**widths).astype(np.int64)
        codes.append(cells if monotone else rng.integers(0, 2**widths, (n, d)))
    return codes, precision, condition_members(codes, precision, nuggets[:k], rng)


@given(
    n=st.integers(1, 70),
    d=st.integers(1, 5),
    k=st.integers(1, 4),
    most=st.sampled_from([1, 3, 8, 9, 17, 32]),
    monotone=st.booleans(),
    nuggets=st.lists(st.sampled_from(["row", "bit"]), min_size=4, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
@example(5, 1, 1, 1, True, ["row"] * 4, 0)  # no bit is read
@settings(max_examples=examples(100))
def test_keys_and_order_of_the_rows_come_back(n, d, k, most, monotone, nuggets, seed):
    codes, precision, posteriors = make_problem(n, d, k, most, monotone, nuggets, seed)
    stored = pack_rows(posteriors, list(precision), CpuEngine())
    restored = unpack_rows(stored, list(precision), n, CpuEngine())
    for posterior, own in zip(posteriors, restored, strict=True):
        trie = build_trie(own, posterior.order)
        np.testing.assert_array_equal(trie.row_idx, posterior.trie.row_idx)
        np.testing.assert_array_equal(trie.links.lcp, posterior.trie.links.lcp)
        np.testing.assert_array_equal(trie_keys(trie, own), posterior.keys)
    # The number of intervals, by sets of tuples.
    read = [without_unread(*pair) for pair in zip(codes, precision, posteriors, strict=True)]
    for j in range(d):
        distinct = set(zip(*(own[:, j].tolist() for own in read), strict=True))
        assert stored.n_intervals[j] == len(distinct)


def without_unread(codes, widths, posterior):
    """Codes with 0 in the bit that the order does not read."""
    order, codes = posterior.order, codes.copy()
    if order.n_levels < order.n_bits:
        bit, ends = int(order.bits[-1]), np.cumsum(widths)
        j = int(np.searchsorted(ends, bit, side="right"))
        codes[:, j] &= ~(1 << int(ends[j] - 1 - bit))
    return codes


@pytest.mark.parametrize("nugget", ["row", "bit"])
@pytest.mark.parametrize(("d", "width"), [(2, 32), (5, 13), (4, 32), (1, 1), (13, 5), (43, 3)])
def test_codes_from_keys_of_whole_words(d, width, nugget):
    """64, 65, 128, 1 and 129 bits: with and without an unread bit that begins a new word."""
    problem = make_problem(40, d, 1, width, False, [nugget], 0, alike=True)
    (codes,), (widths,), (posterior,) = problem
    found = recover_codes(posterior, CpuEngine())
    expected = pack_codes(without_unread(codes, widths, posterior), widths).packed
    np.testing.assert_array_equal(found, expected)


def test_numbers_take_as_few_bits_as_there_are_intervals():
    codes = [np.column_stack([np.arange(n) % k for k in (1, 2, 3, 4, 5, 300)]) for n in (1000,)]
    precision = np.full((1, 6), 9)
    posteriors = condition_members(codes, precision, ["bit"], np.random.default_rng(0))
    stored = pack_rows(posteriors, list(precision), CpuEngine())
    assert stored.n_intervals.tolist() == [1, 2, 3, 4, 5, 300]
    assert stored.intervals.shape == (0 + 1 + 2 + 2 + 3 + 9, 125)


def test_the_number_of_threads_changes_nothing():
    problem = make_problem(40_000, 3, 4, 9, True, ["row"] * 4, 0)
    _, precision, posteriors = problem
    one, many = (pack_rows(posteriors, list(precision), CpuEngine(k)) for k in (1, 4))
    for name in ("n_intervals", "intervals", "codes"):
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name), strict=True)
    read = [unpack_rows(one, list(precision), 40_000, CpuEngine(k)) for k in (1, 4)]
    for a, b in zip(*read, strict=True):
        np.testing.assert_array_equal(a.packed, b.packed, strict=True)


# Whole models


@pytest.fixture
def as_intervals(monkeypatch):
    """Few rows are stored as intervals, too."""
    monkeypatch.setattr(mixture, "FEW_ROWS", 0)


@pytest.mark.usefixtures("as_intervals")
@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_says_the_same_to_the_last_bit(name, tmp_path):
    model = MODELS[name]()
    loaded = through_file(model, tmp_path / "m")
    stored = read_file(tmp_path / "m")[1]
    assert any(part.endswith(".n_intervals") for part in stored)
    assert not any(part.endswith(".keys") for part in stored)
    assert_same(model, loaded)
    rows = MORE[:, : model.n_features_in_]
    y = Y[:7] if model.one_dimensional_ else np.tile(Y[:7, None], model.target_mean_.size)
    assert_same(model.partial_fit(rows, y), loaded.partial_fit(rows, y))
    loaded.save(tmp_path / "a")
    triegp.load(tmp_path / "a").save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def many_rows():
    draw = np.random.default_rng(0)
    features = draw.random((3000, 3))
    return features, np.sin(6 * features[:, 0]) + 0.2 * draw.standard_normal(3000)


def test_a_file_of_many_rows_is_small_and_a_pickle_has_the_keys(tmp_path):
    model = small(n_members=12, mixture="softmax", temperature=1e9).fit(*many_rows())
    loaded = through_file(model, tmp_path / "m")
    assert_same(model, loaded)
    assert_same(model, pickle.loads(pickle.dumps(model)))
    quick = model.__getstate__()["_packed"][1]
    assert sum(name.endswith(".keys") for name in quick) == 12
    stored = read_file(tmp_path / "m")[1]
    rows, keys = (
        sum(array.nbytes for name, array in arrays.items() if is_rows(name))
        for arrays in (stored, quick)
    )
    # 12 (8 + 4 + 4) bytes per row as keys; at most 12 bits per value of 3 features as intervals.
    assert keys == 3000 * 12 * 16
    assert rows < keys / 10


def is_rows(name):
    return name.split(".")[-1] in ("n_intervals", "intervals", "codes", "keys", "row_idx", "lcp")


def test_few_rows_are_stored_as_keys(tmp_path):
    model = MODELS["plain"]()
    model.save(tmp_path / "m")
    assert any(place.endswith(".keys") for place in read_file(tmp_path / "m")[1])


# Files that do not hold together


@pytest.fixture(scope="module")
def parts():
    return parts_of(small().fit(*many_rows()))


def test_the_parts_unchanged_are_a_model(parts, tmp_path):
    count = array_at(parts, f"{INTERVALS}.n_intervals")
    assert (count & (count - 1)).any()  # of which all ones is no number
    assert triegp.load(write_parts(tmp_path / "m", *parts)).predict(NEW[:5]).shape == (5,)


def compress(data):
    return np.frombuffer(zlib.compress(data), np.uint8)


def with_codes(edit):
    """Edit the bytes of the steps."""

    def apply(array):
        return compress(edit(bytearray(zlib.decompress(array.tobytes()))))

    return apply


def raise_first(data):
    data[0] = 255
    data[len(data) // 2] = 255  # the first step is 2^16 - 1
    return data


INTERVALS = "stream.fitted.0.base.intervals"
EDITS = {
    "no intervals": ("n_intervals", np.zeros_like),
    "intervals below 0": ("n_intervals", lambda a: -a),
    "more intervals than rows": ("n_intervals", lambda a: a * 0 + 3001),
    "very many intervals": ("n_intervals", lambda a: a.astype(np.int64) * 0 + 2**62),
    "other numbers of intervals": ("n_intervals", lambda a: a + 1),
    "intervals of fewer features": ("n_intervals", lambda a: a[:-1]),
    "too few planes": ("intervals", lambda a: a[:-1]),
    "too many planes": ("intervals", lambda a: np.vstack([a, a[:1]])),
    "planes of fewer rows": ("intervals", lambda a: a[:, :-1]),
    "intervals that are not there": ("intervals", lambda a: np.full_like(a, 255)),
    "no codes": ("codes", lambda a: a[:0]),
    "codes that are cut off": ("codes", lambda a: a[:-5]),
    "codes and more": ("codes", lambda a: np.append(a, a[:3])),
    "codes that are not compressed": ("codes", lambda a: np.zeros(500, np.uint8)),
    "codes of fewer intervals": ("codes", with_codes(lambda data: data[:-4])),
    "codes of three bytes": ("codes", with_codes(lambda data: data + data[: len(data) // 2])),
    "codes without end": ("codes", lambda a: compress(bytes(10**8))),
    "codes beyond the grid": ("codes", with_codes(raise_first)),
}


@pytest.mark.parametrize(("name", "edit"), EDITS.values(), ids=EDITS)
def test_arrays_that_do_not_fit(parts, tmp_path, name, edit):
    wrong = edited(parts, f"{INTERVALS}.{name}", edit)
    refused(write_parts(tmp_path / "m", *wrong), "does not hold a complete model")


def test_a_model_larger_than_the_memory_of_the_machine(parts, tmp_path, monkeypatch):
    path = write_parts(tmp_path / "m", *parts)
    real = os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: 100 if name == "SC_PHYS_PAGES" else real(name))
    with pytest.raises(MemoryError, match=r"needs about 0\.\d+ GB of memory, this machine has"):
        triegp.load(path)


def test_codes_larger_than_the_memory_of_the_machine(monkeypatch):
    """They are not read, whatever their compressed size."""
    _, precision, posteriors = make_problem(500, 2, 2, 9, True, ["row"] * 2, 0)
    stored = pack_rows(posteriors, list(precision), CpuEngine())
    monkeypatch.setattr(os, "sysconf", lambda name: 1)
    monkeypatch.setattr(zlib, "decompressobj", None)
    with pytest.raises(MemoryError, match="this machine has"):
        unpack_rows(stored, list(precision), 500, CpuEngine())


def test_predictions_do_not_depend_on_the_layout(parts, tmp_path, monkeypatch):
    whole = triegp.load(write_parts(tmp_path / "m", *parts))
    monkeypatch.setattr(mixture, "FEW_ROWS", 10_000)
    whole.save(tmp_path / "k")
    assert any(place.endswith(".keys") for place in read_file(tmp_path / "k")[1])
    assert_same(triegp.load(tmp_path / "k"), whole)
