"""The codec: records of all kinds, there and back."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
import pytest

from triegp.files import calibration, codec, forest, mixture, state
from triegp.files.codec import RULES, VARIANTS, Reading, Rule, pack, unpack

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Shape(Protocol):
    """Any shape."""


class Circle(NamedTuple):
    """A variant."""

    radius: float


@dataclass(frozen=True, eq=False)
class Inner:
    """A record in a record."""

    values: Floats
    index: Ints | None = None


@dataclass(frozen=True, eq=False)
class Outer:
    """All that a record may hold."""

    name: str
    flag: bool
    count: int
    size: float
    dtype: np.dtype[Any]
    inner: Inner
    several: tuple[Inner, ...]
    pair: tuple[int, Floats] | None
    shape: Shape
    anything: tuple[Any, ...]
    total: float = 0.0


RULES[Inner] = Rule("values:n index:k", {"index": codec.a_permutation})
RULES[Outer] = Rule(
    "pair:_,2",
    {"name": ("a", "b"), "count": (0, 9), "size": (0.0, np.inf)},
    odd=("size",),
    without=("total",),
)
VARIANTS[Shape] = {"Circle": __name__}


def make(**changes):
    values = np.arange(300.0)
    one = Inner(values, np.array([1, 0, 2]))
    two = Inner(values.copy())
    given = ["a", True, 3, np.inf, np.dtype("float32"), one, (one, two), (1, np.ones((3, 2)))]
    return Outer(*given, Circle(2.0), ("x", 1.5), 7.0)


def test_a_record_comes_back():
    facts, arrays = pack(make())
    found = unpack(Outer, facts, Reading(arrays))
    assert (found.name, found.flag, found.count, found.size) == ("a", True, 3, np.inf)
    assert (found.dtype, found.shape, found.anything) == (np.dtype("f4"), Circle(2.0), ("x", 1.5))
    assert found.total == 0.0  # not stored
    assert found.several[1].index is None
    assert found.inner.index.dtype == np.int64
    np.testing.assert_array_equal(found.inner.index, [1, 0, 2])
    np.testing.assert_array_equal(found.pair[1], np.ones((3, 2)))
    assert pack(found)[0] == facts


def test_the_same_array_is_stored_once_and_so_is_one_with_the_same_contents():
    facts, arrays = pack(make())
    assert arrays.keys() == {"inner.values", "inner.index", "pair.1"}
    assert arrays["inner.index"].dtype == np.int32
    found = unpack(Outer, facts, Reading(arrays))
    assert found.several[1].values is found.inner.values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "c"}, "name must be one of 'a', 'b'"),
        ({"flag": 1}, "flag must be True or False"),
        ({"count": -1}, "count must be an integer, 0 or more"),
        ({"size": "nan"}, "size must lie between 0 and inf"),
        ({"size": -1.0}, "size must lie between 0 and inf, got -1.0"),
        ({"dtype": "int8"}, "dtype must be one of"),
        ({"inner": None}, "inner must have the fields values, index, got None"),
        ({"inner": {"values": True, "index": "inner.values"}}, "inner.index must be int64"),
        ({"inner": {"values": "nothing", "index": None}}, "inner.values needs the array nothing"),
        ({"several": {}}, "several must be a list"),
        ({"several": [3]}, "several.0 must have the fields"),
        ({"pair": [1]}, "pair must be a list of as many"),
        ({"pair": [1, "inner.values"]}, r"pair.1 must have shape \(_,2\)"),
        ({"shape": {"record": "Square"}}, "shape.record must be one of 'Circle'"),
        ({"total": 1.0}, "Outer must have the fields"),
    ],
)
def test_errors_name_the_field(change, message):
    facts, arrays = pack(make())
    with pytest.raises(ValueError, match=message):
        unpack(Outer, facts | change, Reading(arrays))


def records_in(hint, found):
    """All classes that a record of a class may hold, itself included."""
    for part in get_args(hint):
        records_in(part, found)
    for name, module in VARIANTS.get(hint, {}).items():
        if not module.startswith("test_"):
            records_in(getattr(codec.import_once(module), name), found)
    stored = isinstance(hint, type) and hint.__module__.startswith("triegp.")
    if stored and hint not in found and hint not in VARIANTS:
        found.add(hint)
        for part in codec._fields(hint).values():
            records_in(part, found)
    return found


def arrays_in(hint):
    """Whether an annotation has an array that is not in another record."""
    if getattr(hint, "__origin__", None) is np.ndarray:
        return True
    return any(arrays_in(part) for part in get_args(hint))


def test_every_array_that_is_stored_has_a_shape_and_every_rule_is_about_fields():
    """Whoever adds an array to a record is told to add its shape to the rule."""
    records = records_in(state.ModelState, set())
    assert {forest.ForestModel, mixture.StoredMember, calibration.Stage} <= records
    for cls in records:
        hints, rule = codec._fields(cls), RULES.get(cls, Rule())
        needed = {name for name, hint in hints.items() if arrays_in(hint)}
        assert rule.shape_of.keys() == needed, cls
        assert rule.values.keys() | set(rule.odd) <= hints.keys(), cls
        assert set(rule.without) <= get_type_hints(cls).keys(), cls
