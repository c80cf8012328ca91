"""Ways to damage a model file, each drawn from a random generator.

Some work on the bytes: the digest then does not fit, and the file must be refused. The others take
the file apart, edit the JSON header or the tensors, and sign the result with a fitting digest, so
that the checks behind the digest are reached.
"""

from __future__ import annotations

import copy
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from triegp.files.container import FORMAT, _digest
from triegp.files.trees import neighbours

Draw = np.random.Generator
Arrays = dict[str, Any]

HUGE = (2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, 10**400)
NUMBERS = (0, 1, 2, -1, -2, 3, 7, 63, 64, 65, 127, 1000, 0.0, -0.0, 0.5, -1.5, 1e-300, 5e-324, 1e30)
NUMBERS += (1e150, 1e300, 1.7e308, -1e308, float("nan"), float("inf"), -float("inf"), *HUGE)
THINGS = (None, True, False, "", "x", "1", "nan", "\x00", "\u00e9", [], {}, [[]], [None], {"a": 1})
WORDS = ("BinaryTreeGPRegressor", "TrieGPRegressor", "minmax", "ecdf", "row", "bit", "float32")
WORDS += ("float64", "clip", "unrelated", "error", "widen", "number", "category", "ordered", "time")
WORDS += ("duration", "value", "missing", "mean", "rank", "hour", "weekday", "log", "quantile")
WORDS += ("Log", "YeoJohnson", "Quantile", "Ensemble", "FittedForest", "CalibratedModel")
WORDS += ("Dense", "Linear", "rbf", "matern12", "matern32", "matern52", "exact", "nearby", "cuda")
DTYPES = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")
STORED = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")
STORED += ("F8_E4M3", "F8_E5M2", "F8_E8M0", "F6_E2M3", "F4", "C64", "X", "", "f64")


class Parts(NamedTuple):
    """A model file taken apart: header and tensors, as they are stored."""

    header: dict[str, Any]
    arrays: Arrays


def take_apart(path: Path) -> Parts:
    """Header, without digest, and tensors of a file; nothing is decoded."""
    with safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()[FORMAT])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del header["sha256"]
    return Parts(header, arrays)


def sign(parts: Parts) -> bytes:
    """The file of these parts, with a fitting digest."""
    text = json.dumps(parts.header, sort_keys=True)
    text = re.sub(r'"nested (\d+)"', lambda one: "[" * int(one[1]) + "]" * int(one[1]), text)
    arrays = {name: np.ascontiguousarray(array) for name, array in parts.arrays.items()}
    head, comma = f'{{"sha256": "{_digest(text, arrays)}"', ", " if len(text) > 2 else ""
    return bytes(save(arrays, {FORMAT: f"{head}{comma}{text[1:]}"}))


# Bytes


def flip_bits(content: bytes, other: bytes, draw: Draw) -> bytes:
    """One to eight bits, most of the time in the header."""
    edited = bytearray(content)
    end = 8 + int.from_bytes(content[:8], "little")
    for _ in range(draw.integers(1, 9)):
        place = int(draw.integers(0, min(end, len(edited)) if draw.random() < 0.6 else len(edited)))
        edited[place] ^= 1 << int(draw.integers(0, 8))
    return bytes(edited)


def cut_off(content: bytes, other: bytes, draw: Draw) -> bytes:
    """Shorter or longer."""
    if draw.random() < 0.3:
        return content + draw.bytes(int(draw.integers(1, 100)))
    return content[: int(draw.integers(0, len(content)))]


def splice(content: bytes, other: bytes, draw: Draw) -> bytes:
    """The beginning of one file and the end of another, at the end of a header or anywhere."""
    if draw.random() < 0.5:
        ends = [8 + int.from_bytes(part[:8], "little") for part in (content, other)]
        return content[: ends[0]] + other[ends[1] :]
    place = int(draw.integers(0, len(content)))
    return content[:place] + other[int(draw.integers(0, len(other))) :]


def edit_container(content: bytes, other: bytes, draw: Draw) -> bytes:
    """The header of safetensors: dtypes, shapes and offsets of tensors, its own length."""
    size = int.from_bytes(content[:8], "little")
    body = content[8 + size :]
    if draw.random() < 0.15:
        lengths = (0, 1, size - 1, size + 1, 2**31, 2**40, 2**63, 2**64 - 1)
        length = lengths[draw.integers(0, len(lengths))]
        return length.to_bytes(8, "little") + content[8:]
    table = json.loads(content[8 : 8 + size])
    name = str(draw.choice([name for name in table if name != "__metadata__"]))
    entry, what = table[name], int(draw.integers(0, 7))
    dims: list[Any] = [
        0,
        1,
        2,
        -1,
        2**31,
        2**32,
        2**62,
        2**63,
        2**64 - 1,
        2**64,
        1.5,
        "1",
        None,
        [],
    ]
    value = dims[draw.integers(0, len(dims))]
    if what == 0:
        entry["dtype"] = str(draw.choice(STORED))
    elif what == 1 and entry["shape"]:
        entry["shape"][draw.integers(0, len(entry["shape"]))] = value
    elif what == 2:
        entry["shape"] = [2**32, 2**32] if draw.random() < 0.5 else [1] * int(draw.integers(0, 100))
    elif what == 3:
        entry["data_offsets"][draw.integers(0, 2)] = value
    elif what == 4:
        entry["data_offsets"] = table[next(iter(table.keys() - {name, "__metadata__"}))][
            "data_offsets"
        ]
    elif what == 5:
        table["__metadata__"] = [{}, None, {FORMAT: 3}, {FORMAT: "[" * 10**5}, []][
            draw.integers(0, 5)
        ]
    else:
        del entry[str(draw.choice(list(entry)))]
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + body


# JSON


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything in a JSON value."""
    found = [path] if path else []
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, part in items:
        found += _places(part, (*path, key))
    return found


def _holder(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        value = value[key]
    return value


def _some_place(header: dict[str, Any], draw: Draw, kind: Any = object) -> tuple[Any, ...] | None:
    """A random place; parameters of the estimator, of which there are many, are drawn seldom."""
    places = [p for p in _places(header) if isinstance(_holder(header, p)[p[-1]], kind)]
    if draw.random() < 0.9:
        places = [p for p in places if p[0] != "parameters"]
    return places[draw.integers(0, len(places))] if places else None


def edit_number(parts: Parts, other: Parts, draw: Draw) -> Parts:
    """A number in the header becomes another, NaN, infinite, huge or negative."""
    header = copy.deepcopy(parts.header)
    if (place := _some_place(header, draw, (int, float))) is not None:
        old = _holder(header, place)[place[-1]]
        near = (old + 1, old - 1, -old, 2 * old, float(old), old * (1 + 1e-3))
        chosen = near if draw.random() < 0.4 else NUMBERS
        _holder(header, place)[place[-1]] = chosen[draw.integers(0, len(chosen))]
    return Parts(header, parts.arrays)


def edit_type(parts: Parts, other: Parts, draw: Draw) -> Parts:
    """Anything in the header becomes something of another type, or another word."""
    header = copy.deepcopy(parts.header)
    if (place := _some_place(header, draw)) is not None:
        things = WORDS if draw.random() < 0.4 else THINGS
        _holder(header, place)[place[-1]] = copy.deepcopy(things[draw.integers(0, len(things))])
    return Parts(header, parts.arrays)


def nest_deeply(parts: Parts, other: Parts, draw: Draw) -> Parts:
    """Anything in the header lies in many lists, or is a very long word, list or number."""
    header = copy.deepcopy(parts.header)
    place = _some_place(header, draw)
    assert place is not None
    value = _holder(header, place)[place[-1]]
    what = int(draw.integers(0, 5))
    if what == 0:
        value = f"nested {int(draw.integers(300, 1100))}"  # written by `sign`
    elif what == 1:
        for _ in range(int(draw.integers(2, 300))):
            value = [value] if draw.random() < 0.5 else {"a": value}
    else:
        value = ("x" * 10**6, [0] * 10**5, [value] * 1000)[what - 2]
    _holder(header, place)[place[-1]] = value
    return Parts(header, parts.arrays)


def edit_structure(parts: Parts, other: Parts, draw: Draw) -> Parts:
    """An entry is missing, twice there, swapped with another, or of another file."""
    header = copy.deepcopy(parts.header)
    place = _some_place(header, draw)
    assert place is not None
    holder, what = _holder(header, place), int(draw.integers(0, 4))
    if what == 0:
        del holder[place[-1]]
    elif what == 1 and isinstance(holder, list):
        holder.insert(place[-1], copy.deepcopy(holder[place[-1]]))
    elif what == 2:
        second = _some_place(header, draw)
        assert second is not None
        there = _holder(header, second)
        one, two = copy.deepcopy((holder[place[-1]], there[second[-1]]))
        holder[place[-1]], there[second[-1]] = two, one
    else:
        key = str(draw.choice(list(other.header)))
        header[key] = copy.deepcopy(other.header[key])
    return Parts(header, parts.arrays)


SETTINGS = (10**4, 10**6, 10**9, 10**12, 2**31, 2**63, 10**30, -1, 0, 1, 2, 31, 32, 0.5, 1.0)
SETTINGS += (1e-320, 1e-300, 1e-12, 1e300, None, True, False)
ODD_SETTINGS = (10**400, float("nan"), float("inf"), [], {}, [32], [32, 32], [[1]], [1e9], [-1])
ODD_SETTINGS += ("auto", "x" * 10**5, [0] * 10**5, ["x0", "x9"])


def edit_parameter(parts: Parts, other: Parts, draw: Draw) -> Parts:
    """One to three parameters of the estimator become hostile; most are numbers, as before."""
    header = copy.deepcopy(parts.header)
    own = header["parameters"]
    words = [name for name, value in own.items() if isinstance(value, str)]
    rest = [name for name in own if name not in words]
    for _ in range(int(draw.choice([1, 1, 1, 2, 3]))):
        name = str(draw.choice(sorted(words if words and draw.random() < 0.2 else rest)))
        values: Any = SETTINGS if draw.random() < 0.8 else ODD_SETTINGS
        if name in words and draw.random() < 0.8:
            values = (*WORDS, *(own[one] for one in words))
        own[name] = copy.deepcopy(values[draw.integers(0, len(values))])
    return Parts(header, parts.arrays)


def edit_rows(parts: Parts, other: Parts, draw: Draw) -> Parts:
    """What a refit reads: rows, the plan, seeds, and how columns are read."""
    header, names = copy.deepcopy(parts.header), [*parts.arrays]
    read = ("plan", "seeds", "columns", "layout", "kept", "observations")
    names = [name for name in names if name.split(".")[1] in read]
    places = [p for p in _places(header) if p[:2] == ("model", "stream") and p[2:] and p[2] in read]
    if names and (not places or draw.random() < 0.6):
        name = str(draw.choice(sorted(names)))
        found = edit_values(Parts(header, {name: parts.arrays[name]}), other, draw)
        return Parts(header, parts.arrays | found.arrays)
    if places:
        place = places[draw.integers(0, len(places))]
        old = _holder(header, place)[place[-1]]
        near = (old + 1, old - 1, 2 * old, -old) if isinstance(old, int) else ()
        values = (*near, *near, *NUMBERS, *THINGS)
        _holder(header, place)[place[-1]] = copy.deepcopy(values[draw.integers(0, len(values))])
    return Parts(header, parts.arrays)


# Tensors


def _some_array(arrays: Arrays, draw: Draw) -> str:
    return str(draw.choice(sorted(arrays)))


def _hostile(array: Any, draw: Draw) -> Any:
    """A value for an entry of this array."""
    kind = array.dtype
    if kind.kind == "b":
        return bool(draw.integers(0, 2))
    if kind.kind == "f":
        values = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 5e-324, 1e-300, 1e-30, 1e30, 1e150, 1e300, -1e300]
        values += [1.7e308, -1.7e308, np.nan, np.inf, -np.inf, float(draw.standard_normal())]
        with np.errstate(over="ignore"):
            return kind.type(values[draw.integers(0, len(values))])
    info = np.iinfo(kind)
    values = [0, 1, -1, -2, 2, 7, 31, 32, 33, 63, 64, array.size - 1, array.size, array.size + 1]
    values += [len(array) - 1, len(array), info.min, info.max, info.max - 1, 2**30, 2**16, 2**40]
    return kind.type(min(max(int(values[draw.integers(0, len(values))]), info.min), info.max))


def edit_values(parts: Parts, other: Parts, draw: Draw) -> Parts:
    """Entries of a tensor become hostile, flip a bit, or change places."""
    name = _some_array(parts.arrays, draw)
    array = np.array(parts.arrays[name])
    if not array.size:
        return parts
    flat, what = array.reshape(-1), int(draw.integers(0, 7))
    if what < 3:
        for _ in range(int(draw.integers(1, 4))):
            ends = (0, flat.size - 1, int(draw.integers(0, flat.size)))
            flat[ends[draw.integers(0, 3)]] = _hostile(array, draw)
    elif what == 3:
        as_bytes = flat.view(np.uint8)
        as_bytes[draw.integers(0, as_bytes.size)] ^= np.uint8(1 << int(draw.integers(0, 8)))
        if array.dtype.kind == "b":
            flat[:] = as_bytes != 0
    elif what == 4:
        flat[:] = draw.permutation(flat) if draw.random() < 0.5 else np.sort(flat)
    elif what == 5:
        flat[:] = _hostile(array, draw)
    elif array.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            flat *= array.dtype.type(draw.choice([-1.0, 1e-12, 0.999, 1.001, 10.0, 1e12, 1e200]))
    else:
        flat[:] = flat[::-1].copy()
    return Parts(parts.header, parts.arrays | {name: array})


def resize(parts: Parts, other: Parts, draw: Draw) -> Parts:
    """A tensor becomes longer, shorter, empty, flat, transposed, or has more axes."""
    name = _some_array(parts.arrays, draw)
    array, what = parts.arrays[name], int(draw.integers(0, 9))
    if not array.ndim:
        what = 6
    last = int(draw.integers(0, max(array.ndim, 1)))
    if what == 0:
        array = np.delete(array, -1, axis=last) if array.shape[last] else array
    elif what == 1:
        array = np.concatenate([array, array[-1:]])
    elif what == 2:
        array = array[:0]
    elif what == 3:
        array = array.reshape(-1)
    elif what == 4:
        array = array.T
    elif what == 5:
        array = array[None] if draw.random() < 0.5 else array[..., None]
    elif what == 6:
        array = np.zeros((), array.dtype)
    elif what == 7:
        array = np.repeat(array, 2, axis=last)
    else:
        shapes: list[Any] = [(0,), (0, 0), (1,), (2**40, 0), (0, 2**59), (1,) * 33, (10**6,)]
        array = np.zeros(shapes[draw.integers(0, len(shapes))], array.dtype)
    return Parts(parts.header, parts.arrays | {name: array})


def retype(parts: Parts, other: Parts, draw: Draw) -> Parts:
    """A tensor has another dtype: its values converted, or its bytes read anew."""
    name = _some_array(parts.arrays, draw)
    array, kind = parts.arrays[name], np.dtype(str(draw.choice(DTYPES)))
    if draw.random() < 0.5:
        with np.errstate(all="ignore"):
            array = array.astype(kind)
    else:
        content = np.ascontiguousarray(array).tobytes()
        content = content[: len(content) // kind.itemsize * kind.itemsize]
        array = np.frombuffer(content, np.uint8 if kind.kind == "b" else kind)
        array = (array % 2).astype(np.bool_) if kind.kind == "b" else array
    return Parts(parts.header, parts.arrays | {name: array})


def swap_tensors(parts: Parts, other: Parts, draw: Draw) -> Parts:
    """Two tensors change names, or one is missing, added, or that of another file."""
    arrays, what = dict(parts.arrays), int(draw.integers(0, 4))
    name = _some_array(arrays, draw)
    if what == 0:
        second = _some_array(arrays, draw)
        arrays[name], arrays[second] = arrays[second], arrays[name]
    elif what == 1:
        del arrays[name]
    elif what == 2:
        theirs = _some_array(other.arrays, draw)
        arrays[theirs] = other.arrays[theirs]
    else:
        same = sorted(arrays.keys() & other.arrays.keys())
        if same:
            name = str(draw.choice(same))
            arrays[name] = other.arrays[name]
    return Parts(parts.header, arrays)


# What kernels read by index

INDEX_LIKE = ("row_idx", "lcp", "keys", "bits", "index", "order", "inducing", "features", "ranked")
INDEX_LIKE += ("n_intervals", "intervals", "codes", "numbers", "source", "n_known", "precision_")
INDEX_LIKE += ("present", "inputs", "starts", "copies", "grid", "shift_")


def edit_index(parts: Parts, other: Parts, draw: Draw) -> Parts:
    """Tensors that hold indices, depths, keys, codes or counts, edited so that they nearly fit."""
    names = [name for name in sorted(parts.arrays) if name.split(".")[-1] in INDEX_LIKE]
    names = [name for name in names if parts.arrays[name].size] or sorted(parts.arrays)
    name = str(draw.choice(names))
    last, arrays = name.split(".")[-1], dict(parts.arrays)
    array = np.array(arrays[name])
    stem = name[: -len(last)]
    if last == "codes" and array.dtype == np.uint8 and draw.random() < 0.8:
        arrays[name] = _recompress(array, draw)
    elif last in ("keys", "lcp") and f"{stem}keys" in arrays and draw.random() < 0.8:
        arrays |= _other_keys(arrays, stem, draw)
    elif last == "bits" and draw.random() < 0.6:
        i, j = draw.integers(0, array.size, 2)
        array[[i, j]] = array[[j, i]]
        arrays[name] = array
    elif last == "row_idx" and draw.random() < 0.6:
        i = int(draw.integers(0, max(array.size - 1, 1)))
        array[i : i + 2] = array[i : i + 2][::-1].copy()
        arrays[name] = array
    elif last in ("precision_", "n_intervals") and draw.random() < 0.6:
        array.reshape(-1)[draw.integers(0, array.size)] += int(draw.choice([-1, 1, 2, 8]))
        arrays[name] = array
    else:
        flat = array.reshape(-1)
        for _ in range(int(draw.integers(1, 3))):
            flat[draw.integers(0, flat.size)] = _hostile(array, draw)
        arrays[name] = array
    return Parts(parts.header, arrays)


def _recompress(stored: Any, draw: Draw) -> Any:
    """Codes of intervals with edited steps, of another length, or a bomb."""
    raw = bytearray(zlib.decompress(stored.tobytes()))
    what = int(draw.integers(0, 5))
    if what < 2:
        for _ in range(int(draw.integers(1, 5))):
            raw[int(draw.integers(0, len(raw)))] = int(draw.choice([0, 1, 2, 127, 128, 255]))
    elif what == 2:
        raw = raw[: len(raw) // 2] if draw.random() < 0.5 else raw + raw
    elif what == 3:
        raw = bytearray(10**8)
    else:
        return np.concatenate([stored, stored[:5]])
    return np.frombuffer(zlib.compress(bytes(raw), 1), np.uint8)


def _other_keys(arrays: Arrays, stem: str, draw: Draw) -> Arrays:
    """Other keys, sorted, with the lcp of these keys: nothing but the rows themselves is wrong."""
    keys = np.array(arrays[f"{stem}keys"])
    if keys.ndim != 2 or not keys.size or keys.dtype != np.uint64:
        return {}
    of_order = stem.replace(".leaves.", ".trained.order.").replace(".trees.", ".orders.")
    bits = arrays.get(f"{of_order}bits")
    n_levels = 64 * keys.shape[1] if bits is None else max(bits.size - int(draw.integers(0, 2)), 1)
    what = int(draw.integers(0, 4))
    if what == 0:
        keys[draw.integers(0, len(keys))] ^= np.uint64(1) << np.uint64(draw.integers(0, 64))
    elif what == 1:
        keys[draw.integers(0, len(keys))] = [0, 2**64 - 1][draw.integers(0, 2)]
    elif what == 2:
        keys[:] = keys[draw.integers(0, len(keys))]
    else:
        keys[:] = np.frombuffer(draw.bytes(keys.nbytes), np.uint64).reshape(keys.shape)
    keys = keys[np.lexsort(keys.T[::-1])]
    found = {f"{stem}keys": keys}
    if f"{stem}lcp" in arrays:
        shared, _ = neighbours(keys, n_levels)
        found[f"{stem}lcp"] = np.append(-1, shared).astype(np.int32)
        if draw.random() < 0.3:
            found[f"{stem}lcp"][draw.integers(0, len(keys))] += int(draw.choice([-1, 1, 1000]))
    return found


OF_BYTES: dict[str, Callable[[bytes, bytes, Draw], bytes]] = {
    "bits flipped": flip_bits,
    "cut off": cut_off,
    "spliced": splice,
    "container edited": edit_container,
}
OF_PARTS: dict[str, Callable[[Parts, Parts, Draw], Parts]] = {
    "number edited": edit_number,
    "type edited": edit_type,
    "nested or long": nest_deeply,
    "structure edited": edit_structure,
    "values edited": edit_values,
    "tensor resized": resize,
    "tensor retyped": retype,
    "tensors swapped": swap_tensors,
    "indices edited": edit_index,
    "parameters edited": edit_parameter,
    "rows edited": edit_rows,
}
MUTATIONS = (*OF_BYTES, *OF_PARTS, "several")
SHARES = np.array([5, 3, 3, 7, 14, 8, 4, 8, 14, 6, 5, 7, 12, 14, 12, 4], float)  # of all


def mutate(path: Path, other: Path, draw: Draw) -> tuple[str, bytes]:
    """Name of a random mutation, and the bytes of the file after it; other: to take parts from."""
    name = str(draw.choice(MUTATIONS, p=SHARES / SHARES.sum()))
    if name in OF_BYTES:
        return name, OF_BYTES[name](path.read_bytes(), other.read_bytes(), draw)
    parts, theirs = take_apart(path), take_apart(other)
    chosen = [name]
    if name == "several":
        chosen = [str(one) for one in draw.choice(list(OF_PARTS), int(draw.integers(2, 4)))]
    for one in chosen:
        parts = OF_PARTS[one](parts, theirs, draw)
    return name, sign(parts)
