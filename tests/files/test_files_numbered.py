"""Arrays of few distinct values in model files, and numbers as bit planes."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_files import refused, small, through_file
from profiles import examples
from triegp.files import numbered
from triegp.files.container import ModelFileError, read_file, write_file
from triegp.files.numbered import (
    bits_for,
    number_values,
    pack_planes,
    restore_values,
    unpack_planes,
)


@given(
    widths=st.lists(st.integers(0, 32), min_size=1, max_size=5),
    size=st.integers(1, 50),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=examples(100))
def test_numbers_come_back_from_planes(widths, size, seed):
    draw = np.random.default_rng(seed)
    numbers = [draw.integers(0, 2**width, size).astype(np.uint32) for width in widths]
    planes = np.concatenate([pack_planes(*pair) for pair in zip(numbers, widths, strict=True)])
    assert planes.shape == (sum(widths), -(-size // 8))
    for start in range(0, size, 8):
        found = unpack_planes(planes, np.array(widths), slice(start, size))
        np.testing.assert_array_equal(found, np.stack(numbers)[:, start:])


def test_the_layout_of_planes():
    """By hand: 5 = 101, 2 = 010, 7 = 111; plane 0 has the lowest bits."""
    planes = pack_planes(np.array([5, 2, 7], np.uint32), 3)
    assert planes.tolist() == [[0b10100000], [0b01100000], [0b10100000]]
    assert [bits_for(n) for n in (1, 2, 3, 256, 257)] == [0, 1, 2, 8, 9]


@pytest.fixture
def at_once(monkeypatch):
    """Short arrays are numbered, too."""
    monkeypatch.setattr(numbered, "FEWEST", 1)
    monkeypatch.setattr(numbered, "LARGEST_SHARE", 3.0)
    monkeypatch.setattr(numbered, "BLOCK", 16)


STRANGE = np.array([0, 1 << 63, 0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000000], "u8")


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("kind", [np.float64, np.int64, np.uint64])
@pytest.mark.parametrize("shape", [(1,), (50,), (3, 17), (4, 1, 9)])
@pytest.mark.parametrize("n_values", [1, 2, 5])
def test_arrays_come_back_bit_by_bit(kind, shape, n_values):
    """Minus zero, infinity and different kinds of NaN included."""
    draw = np.random.default_rng(0)
    array = draw.choice(STRANGE[:n_values], shape).view(kind)
    stored, shapes = number_values({"a": array, "b": np.zeros(shape, np.uint8)})
    assert stored.keys() == {"a.values", "a.numbers", "b"}
    found = restore_values(stored, shapes)
    assert found.keys() == {"a", "b"}
    assert found["a"].dtype == kind
    assert found["a"].shape == shape
    np.testing.assert_array_equal(found["a"].view(np.uint64), array.view(np.uint64))


def test_only_long_arrays_of_few_values_are_numbered():
    draw = np.random.default_rng(0)
    arrays = {
        "few": draw.integers(0, 3, 5000).astype(float),
        "many": draw.random(5000),
        "short": np.zeros(4095),
        "narrow": np.zeros(5000, np.int32),
        "nothing": np.zeros((0, 5000)),
    }
    stored, shapes = number_values(arrays)
    assert shapes == {"few": [5000]}
    assert stored["few.values"].tolist() == [0.0, 1.0, 2.0]
    assert stored["few.numbers"].shape == (2, 625)
    found = restore_values(stored, shapes)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_a_model_with_weights_and_rounded_targets(tmp_path):
    draw = np.random.default_rng(0)
    features = draw.random((4500, 2))
    y = np.round(np.sin(5 * features[:, 0]) + 0.2 * draw.standard_normal(4500), 1)
    model = small(weights="precision").fit(features, y, draw.integers(1, 4, 4500))
    loaded = through_file(model, tmp_path / "m")
    with open(tmp_path / "m", "rb") as file:
        text = file.read(int.from_bytes(file.read(8), "little"))
    shapes = json.loads(json.loads(text)["__metadata__"]["triegp"])["numbered"]
    assert shapes["stream.fitted.0.base.members.0.rows.0.y"] == [4500]
    assert shapes["stream.fitted.0.base.members.0.rows.0.weight"] == [4500]
    new = 0.1 + 0.8 * draw.random((100, 2))
    np.testing.assert_array_equal(
        loaded.predict(new, return_std=True), model.predict(new, return_std=True)
    )
    np.testing.assert_array_equal(loaded.loo_predict(), model.loo_predict())


# Files that do not hold together


@pytest.fixture
def stored():
    array = np.arange(5000.0) % 5
    return number_values({"a": array})


EDITS = {
    "no values": lambda arrays, shapes: arrays.pop("a.values"),
    "no numbers": lambda arrays, shapes: arrays.pop("a.numbers"),
    "the array itself": lambda arrays, shapes: arrays.update(a=np.zeros(5000)),
    "values of 32 bits": lambda arrays, shapes: arrays.update(
        {"a.values": np.arange(5, dtype=np.float32)}
    ),
    "no value": lambda arrays, shapes: arrays.update({"a.values": np.zeros(0)}),
    "values in a square": lambda arrays, shapes: arrays.update({"a.values": np.zeros((5, 5))}),
    "fewer values": lambda arrays, shapes: arrays.update({"a.values": np.arange(2.0)}),
    "numbers without value": lambda arrays, shapes: arrays.update(
        {"a.numbers": np.full((3, 625), 255, np.uint8)}
    ),
    "numbers of another type": lambda arrays, shapes: arrays.update(
        {"a.numbers": arrays["a.numbers"].view(np.int8)}
    ),
    "fewer planes": lambda arrays, shapes: arrays.update({"a.numbers": arrays["a.numbers"][:-1]}),
    "another length": lambda arrays, shapes: shapes.update(a=[5001]),
    "an endless length": lambda arrays, shapes: shapes.update(a=[2**40, 2**40]),
    "a negative length": lambda arrays, shapes: shapes.update(a=[-1, -5000]),
    "a length that is no number": lambda arrays, shapes: shapes.update(a=["5000"]),
    "a shape that is none": lambda arrays, shapes: shapes.update(a=5000),
    "another array": lambda arrays, shapes: shapes.update(b=[5000]),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_numbers_that_do_not_fit(stored, tmp_path, monkeypatch, edit):
    arrays, shapes = stored
    edit(arrays, shapes)
    monkeypatch.setattr("triegp.files.container.number_values", lambda _: (arrays, shapes))
    write_file(tmp_path / "m", {}, {})
    with pytest.raises(ModelFileError, match="has arrays that cannot be read"):
        read_file(tmp_path / "m")
    refused(tmp_path / "m")


@pytest.mark.parametrize("shapes", [None, 3, [], ["a"], "a"])
def test_shapes_that_are_no_dictionary(tmp_path, monkeypatch, shapes):
    monkeypatch.setattr("triegp.files.container.number_values", lambda _: ({}, shapes))
    write_file(tmp_path / "m", {}, {})
    with pytest.raises(ModelFileError, match="has arrays that cannot be read"):
        read_file(tmp_path / "m")
    refused(tmp_path / "m")
