"""One codec for records: annotated classes of arrays, scalars and other records.

The annotations of a record say what its fields are. `pack` turns a record into facts that JSON can
hold, and flat arrays by name; `unpack` restores it from these, which may be anything. A `Rule` says
what annotations cannot: sizes of arrays, ranges of values, and checks of several fields. To save
another field, add it to the class; if it is an array, add its shape to the rule of the class.

=====================================  ===========================================================
annotation                             fact
=====================================  ===========================================================
bool, int, float, str                  itself; a float that is not finite as text, such as "inf"
array                                  true; or the name of another array with the same contents
dtype                                  its name
record                                 its fields by name
protocol (`VARIANTS`)                  the same, and the name of the class as "record"
tuple                                  a list
`... | None`                           null for None
=====================================  ===========================================================

An array has the name of its place, such as `stream.fitted.0.stages.0.logs`. The same array in two
places is stored once, and so are large arrays with the same contents.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from triegp.checks import boolean, one_of, whole_number
from triegp.engines import CpuEngine, Engine
from triegp.files.memory import check_memory
from triegp.imports import import_once

Arrays = dict[str, npt.NDArray[Any]]
Facts = dict[str, Any]
Record = TypeVar("Record")

LEAST, LARGEST = 5e-324, sys.float_info.max  # positive numbers
UNCHECKED = 1 << 26  # bytes of arrays in records up to which memory is not looked at
SHOWN = 80  # letters of a value in an error
LARGE = 1 << 9  # bytes of an array that is compared with others of its shape
COMPARED = 256  # first bytes of two arrays, which nearly always differ if the arrays do


@dataclass(frozen=True)
class Rule:
    """What the codec knows about a class beside its annotations.

    Attributes
    ----------
    shapes : str
        Shape of each array, as in "low:d slope:k,d": a letter stands for the same size in all
        fields of a record, a word for the same size in all records of a model. Sizes may be 0 if
        they are in capitals; "_" is any size. Every array needs a shape, those within tuples too;
        alternatives are separated by "|".
    values : mapping of str to tuple or callable (array) -> bool
        Smallest and largest value of numbers and arrays, or texts that are allowed, by field; or a
        condition, such as `a_permutation`.
    odd : tuple of str
        Floats that need not be finite, and arrays in which NaN is allowed.
    without : tuple of str
        Fields that are not stored; `make` or their defaults restore them.
    extra : mapping of str to (annotation, callable (record, packing) -> value)
        What is stored in their place.
    make : callable (reading, **fields) -> record, optional
        Makes the record from what was stored; by default the class itself.
    check : callable (record), optional
        Raises ValueError if fields do not fit together. Its message is preceded by the place of the
        record.
    """

    shapes: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    odd: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    extra: Mapping[str, tuple[Any, Callable[..., Any]]] = field(default_factory=dict)
    make: Callable[..., Any] | None = None
    check: Callable[[Any], None] | None = None

    @cached_property
    def shape_of(self) -> dict[str, str]:
        """Shape of each array, by name."""
        return dict(part.split(":") for part in self.shapes.split())


RULES: dict[type, Rule] = {}
VARIANTS: dict[Any, dict[str, str]] = {}  # by protocol: names of classes, and modules with rules


@dataclass
class Packing:
    """Arrays that are packed.

    quickly: in less time, if the arrays may be larger. known: names of arrays that are stored, by
    identity; with the arrays, so that no other gets the same. alike: by dtype and shape.
    """

    quickly: bool = False
    arrays: Arrays = field(default_factory=dict)
    known: dict[int, tuple[str, npt.NDArray[Any]]] = field(default_factory=dict)
    alike: dict[Any, list[str]] = field(default_factory=dict)

    def add(self, path: str, array: npt.NDArray[Any]) -> bool | str:
        """The fact of an array, which is stored unless it already is."""
        if id(array) not in self.known:
            self.known[id(array)] = self._find(path, array), array
        name = self.known[id(array)][0]
        return True if name == path else name

    def _find(self, path: str, array: npt.NDArray[Any]) -> str:
        """Name of a stored array, a large one with the same contents if there is one."""
        if array.dtype == np.int64 and array.size:
            narrow = np.iinfo(np.int32)
            if array.min() >= narrow.min and array.max() <= narrow.max:
                array = array.astype(np.int32)
        array = np.ascontiguousarray(array)
        if array.nbytes >= LARGE:
            names = self.alike.setdefault((array.dtype, array.shape), [])
            for name in names:
                if _same_bits(self.arrays[name], array):
                    return name
            names.append(path)
        self.arrays[path] = array
        return path


@dataclass
class Reading:
    """Arrays of a file that is unpacked, and the engine that restores mixtures.

    known: arrays that are checked. sizes: those that all records share. n_bytes: of arrays, as
    often as records name them; checked when it exceeds `bound`.
    """

    arrays: Arrays
    engine: Engine = field(default_factory=CpuEngine)
    known: dict[Any, npt.NDArray[Any]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    n_bytes: int = 0
    bound: int = 0

    def take(self, path: str, fact: Any, kind: Any, missing: bool) -> npt.NDArray[Any]:
        """The array of a fact; raises ValueError unless it has the dtype and is finite."""
        if fact is not True and not isinstance(fact, str):
            raise ValueError(f"{path} must be an array, got {shorten(fact)}")
        name = path if fact is True else fact
        key = (name, kind, missing)
        if key not in self.known:
            if name not in self.arrays:
                raise ValueError(f"{path:.{SHOWN}} needs the array {name:.{SHOWN}}")
            self.known[key] = _check_array(path, self.arrays[name], kind, missing)
        self.n_bytes += self.known[key].nbytes
        if self.n_bytes > max(self.bound, UNCHECKED):  # a header may name an array often
            check_memory(self.n_bytes)
            self.bound = 2 * self.n_bytes
        return self.known[key]


def pack(record: Any, *, quickly: bool = False) -> tuple[Facts, Arrays]:
    """Facts of a record, which JSON can hold, and its arrays by name."""
    packing = Packing(quickly)
    return _pack_record(record, type(record), "", packing), packing.arrays


def unpack(cls: type[Record], facts: Any, reading: Reading) -> Record:
    """The record of these facts; raises ValueError, naming the field, if anything does not fit."""
    return cast(Record, _unpack_record(cls, facts, "", reading))


def shorten(value: Any) -> str:
    """A value as text for an error."""
    try:
        return f"{value!r:.{SHOWN}}"
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"


@cache
def _fields(cls: type) -> dict[str, Any]:
    """Annotations of what is stored of a class, by name."""
    rule = RULES.get(cls, Rule())
    hints = {name: hint for name, hint in get_type_hints(cls).items() if name not in rule.without}
    return hints | {name: hint for name, (hint, _) in rule.extra.items()}


def _pack_record(record: Any, cls: type, path: str, packing: Packing) -> Facts:
    rule, facts = RULES.get(cls, Rule()), {}
    for name, hint in _fields(cls).items():
        if name in rule.extra:
            value = rule.extra[name][1](record, packing)
        else:
            value = getattr(record, name)
        facts[name] = _pack_value(value, hint, f"{path}.{name}" if path else name, packing)
    return facts


def _pack_value(value: Any, hint: Any, path: str, packing: Packing) -> Any:
    origin = get_origin(hint)
    if value is None:
        return None
    if origin in (types.UnionType, Union):
        return _pack_value(value, get_args(hint)[0], path, packing)
    if origin is np.ndarray:
        kind = _dtype_of(hint)
        return packing.add(path, np.asarray(value, kind))
    if origin is np.dtype:
        return value.name
    if origin is tuple:
        hints = _items(hint, len(value))
        pairs = enumerate(zip(value, hints, strict=True))
        return [_pack_value(part, own, f"{path}.{k}", packing) for k, (part, own) in pairs]
    if hint in (bool, int, str):
        return hint(value)
    if hint is float:
        return float(value) if math.isfinite(value) else str(float(value))
    if hint in VARIANTS:
        name = type(value).__name__
        if name not in VARIANTS[hint]:
            raise TypeError(
                f"model files never hold pickles, so a {name} as {path} cannot be saved: pickle "
                "the estimator instead"
            )
        import_once(VARIANTS[hint][name])
        return {"record": name, **_pack_record(value, type(value), path, packing)}
    return value if hint is Any else _pack_record(value, hint, path, packing)


def _unpack_record(cls: type, facts: Any, path: str, reading: Reading) -> Any:
    rule, hints, place = RULES.get(cls, Rule()), _fields(cls), path or cls.__name__
    if not isinstance(facts, dict) or facts.keys() != hints.keys():
        got = ", ".join(map(str, facts)) if isinstance(facts, dict) else shorten(facts)
        raise ValueError(f"{place} must have the fields {', '.join(hints)}, got {got:.200}")
    own = _Fields(rule, reading)
    start = f"{path}." if path else ""
    values = {name: own.read(facts[name], hint, name, start + name) for name, hint in hints.items()}
    try:
        record = cls(**values) if rule.make is None else rule.make(reading, **values)
        if rule.check is not None:
            rule.check(record)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    return record


class _Fields:
    """Reads the fields of one record."""

    def __init__(self, rule: Rule, reading: Reading) -> None:
        self.rule, self.reading = rule, reading
        self.sizes: dict[str, int] = {}

    def read(self, fact: Any, hint: Any, name: str, path: str) -> Any:
        """The value of a fact of the field `name`; raises ValueError unless it fits."""
        origin, values = get_origin(hint), self.rule.values.get(name)
        if origin in (types.UnionType, Union):
            return None if fact is None else self.read(fact, get_args(hint)[0], name, path)
        if origin is np.ndarray:
            array = self.reading.take(path, fact, _dtype_of(hint), name in self.rule.odd)
            self.check_shape(array, name, path)
            return _within(values, array, path)
        if origin is np.dtype:
            return np.dtype(one_of(path, fact, ("float64", "float32")))
        if origin is tuple:
            hints = _items(hint, len(fact)) if isinstance(fact, list) else ()
            if not isinstance(fact, list) or len(hints) != len(fact):
                raise ValueError(f"{path} must be a list of as many, got {shorten(fact)}")
            parts = enumerate(zip(fact, hints, strict=True))
            return tuple(self.read(part, own, name, f"{path}.{k}") for k, (part, own) in parts)
        if hint is bool:
            return boolean(path, fact)
        if hint is int:
            return whole_number(path, fact, 0)
        if hint is float:
            return _within(values, _number(path, fact, name in self.rule.odd), path)
        if hint is str:
            if not isinstance(fact, str):
                raise ValueError(f"{path} must be a text, got {shorten(fact)}")
            return fact if values is None else one_of(path, fact, values)
        if hint in VARIANTS:
            fact = dict(fact) if isinstance(fact, dict) else {}
            kind = one_of(f"{path}.record", fact.pop("record", None), tuple(VARIANTS[hint]))
            hint = getattr(import_once(VARIANTS[hint][kind]), kind)
        return fact if hint is Any else _unpack_record(hint, fact, path, self.reading)

    def check_shape(self, array: npt.NDArray[Any], name: str, path: str) -> None:
        """Raise ValueError unless an array fits; sizes that are new become known."""
        for shape in self.rule.shape_of[name].split("|"):
            pairs = list(zip(shape.split(","), array.shape, strict=False))
            tables = [self.sizes_of(size) for size, _ in pairs]
            if array.ndim == shape.count(",") + 1 and all(
                table.get(size, n) == n and (n > 0 or not size.islower())
                for table, (size, n) in zip(tables, pairs, strict=True)
            ):
                for table, (size, n) in zip(tables, pairs, strict=True):
                    table[size] = n
                return
        known = ", ".join(f"{k}={n}" for k, n in (self.sizes | self.reading.sizes).items())
        raise ValueError(f"{path} must have shape ({shape}) with {known}, got {array.shape}")

    def sizes_of(self, size: str) -> dict[str, int]:
        """Where a size is known, if it is: of this record, of all records, or a number."""
        if size == "_" or size.isdigit():
            return {size: int(size)} if size != "_" else {}
        return self.reading.sizes if len(size) > 1 else self.sizes


def _items(hint: Any, n: int) -> tuple[Any, ...]:
    """Annotations of the items of a tuple, n of them if it may have any length."""
    items = get_args(hint)
    return (items[0],) * n if items[-1] is ... else items


@cache
def _dtype_of(hint: Any) -> Any:
    """Dtype of an annotated array; None for float32 or float64."""
    kind = get_args(get_args(hint)[1])[0]
    return None if kind in (Any, np.floating) else np.dtype(kind)


def _check_array(path: str, array: npt.NDArray[Any], kind: Any, missing: bool) -> Any:
    wanted = "float32 or float64" if kind is None else kind
    fits = array.dtype == kind if kind else array.dtype in (np.float32, np.float64)
    if kind == np.int64 and array.dtype == np.int32:
        return array.astype(np.int64)
    if not fits:
        raise ValueError(f"{path} must be {wanted}, got {array.dtype}")
    if array.dtype.kind == "f":
        bad = np.isinf(array) if missing else ~np.isfinite(array)
        if bad.any():
            raise ValueError(f"{path} must be finite, got NaN or infinity")
    return array


def a_permutation(numbers: npt.NDArray[Any]) -> bool:
    """Whether integers (n,) are 0..n-1 in any order."""
    if numbers.min() < 0 or numbers.max() >= numbers.size:
        return False
    return bool((np.bincount(numbers, minlength=numbers.size) == 1).all())


def rising(values: npt.NDArray[Any]) -> bool:
    """Whether each value is larger than the one before, along the last axis."""
    return bool((values[..., 1:] > values[..., :-1]).all())


def never_falling(values: npt.NDArray[Any]) -> bool:
    """Whether no value is smaller than the one before, along the last axis."""
    return bool((values[..., 1:] >= values[..., :-1]).all())


def _within(limits: Any, value: Any, path: str) -> Any:
    """The number or array; raises ValueError unless it lies within limits, or fulfils them."""
    if callable(limits):
        if not limits(value):
            raise ValueError(f"{path} must be {limits.__name__.replace('_', ' ')}")
    elif limits is not None and np.size(value):
        least, most = np.min(value), np.max(value)
        if not (limits[0] <= least and most <= limits[1]):
            raise ValueError(
                f"{path} must lie between {limits[0]:g} and {limits[1]:g}, got {least} to {most}"
            )
    return value


def _number(path: str, fact: Any, odd: bool) -> float:
    if type(fact) not in (int, float) and not (odd and fact in ("inf", "-inf", "nan")):
        raise ValueError(f"{path} must be a number, got {shorten(fact)}")
    number = float(fact)
    if not (odd or math.isfinite(number)):
        raise ValueError(f"{path} must be finite, got {number}")
    return number


def _same_bits(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether two contiguous arrays of the same dtype and shape hold the same bytes."""
    one, two = (part.reshape(-1).view(np.uint8) for part in (a, b))
    heads = np.array_equal(one[:COMPARED], two[:COMPARED])
    return heads and np.array_equal(one, two)
