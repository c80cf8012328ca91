"""The benchmark's tables: splits, places, and downloads from a server on this machine."""

import gzip
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from bench.sources import DATASETS, DataError, Dataset, fingerprint

from bench import data, sources

ROWS, FEATURES = 23, 3
PAPER_ROWS = {  # training rows in the paper's Table 1
    "PoleTele": 9_600,
    "Elevators": 10_623,
    "Bike": 11_122,
    "Kin40k": 25_600,
    "Protein": 29_267,
    "KeggDir": 31_248,
    "CTslice": 34_240,
    "KEGGU": 40_708,
    "3DRoad": 278_319,
    "Song": 329_820,
    "Buzz": 373_280,
    "HouseElec": 1_311_539,
}


def make_table(seed=0):
    """X and y in float64, not all of it float32 numbers."""
    table = np.random.default_rng(seed).standard_normal((ROWS, FEATURES + 1))
    return table[:, :-1], table[:, -1]


def as_csv(X, y):
    return "".join(",".join(map(repr, row)) + "\n" for row in np.column_stack([X, y]).tolist())


def zipped(text):
    return gzip.compress(text.encode(), mtime=0)


def write_npz(path, X, y):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, X=X, y=y)


def files_in(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache and an empty data folder."""
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("TRIEGP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TRIEGP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server(monkeypatch):
    """A server of `files` (path: body, or (body, announced length)) at `address`."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append(self.path)
            if self.path not in server.files:
                self.send_error(404)
                return
            body = server.files[self.path]
            body, length = body if isinstance(body, tuple) else (body, len(body))
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.asked = {}, []
        server.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.005,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def register(monkeypatch):
    """Put a table of ROWS x FEATURES into the registry."""

    def put(name="toy", address=None, checksum=None, **others):
        dataset = Dataset(name, None, ROWS, FEATURES, address, checksum, **others)
        monkeypatch.setitem(DATASETS, name, dataset)
        return dataset

    return put


def test_parts_are_the_papers_split(cache, register, tmp_path):
    register()
    X, y = make_table()
    write_npz(tmp_path / "data" / "toy" / "data.npz", X, y[:, None])
    parts = data.load("toy", 5, "train", "valid", "test")
    np.random.seed(5)  # noqa: NPY002  the paper's way to write it
    rows = np.random.permutation(ROWS)  # noqa: NPY002
    assert [len(y_part) for _, y_part in parts] == [14, 4, 5]
    for (X_part, y_part), where in zip(parts, np.split(rows, [14, 18]), strict=True):
        assert X_part.dtype == y_part.dtype == np.float64
        np.testing.assert_array_equal(X_part, X[where].astype(np.float32))
        np.testing.assert_array_equal(y_part, y[where].astype(np.float32))


def test_only_the_parts_asked_for_in_their_order(cache, register, tmp_path):
    register()
    write_npz(tmp_path / "data" / "toy" / "data.npz", *make_table())
    train, valid, test = data.load("toy", 0, "train", "valid", "test")
    for found, expected in zip(data.load("toy", 0, "test", "train"), (test, train), strict=True):
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
    ((X_valid, _),) = data.load("toy", 0, "valid")
    np.testing.assert_array_equal(X_valid, valid[0])


def test_names_and_parts_are_checked(cache):
    with pytest.raises(ValueError, match=r"part must be .*, got 'tset'"):
        data.load("pol", 0, "train", "tset")
    with pytest.raises(ValueError, match=r"name must be one of pol, .*, got 'poll'"):
        data.load("poll", 0, "train")
    with pytest.raises(ValueError, match="got 'poll'"):
        data.available("poll")


def test_registry_has_the_papers_twelve_in_its_sizes():
    sizes = {d.paper: int(0.8 * int(0.8 * d.rows)) for d in DATASETS.values() if d.paper}
    assert sizes == PAPER_ROWS
    assert [DATASETS[name].paper for name in data.TWELVE] == list(PAPER_ROWS)
    assert set(data.SEVEN) == {name for name in data.TWELVE if DATASETS[name].checksum}
    assert all(d.checksum or d.address for d in DATASETS.values())


@pytest.mark.parametrize("name", [*data.SEVEN, "airfoil", "concrete", "energy", "yacht", "wine"])
def test_registered_checksums(name):
    if not data.available(name):
        pytest.skip(f"{name} is not in the data folder; set TRIEGP_DATA")
    X, y = data.read(name)  # raises on a mismatch
    assert X.shape == (DATASETS[name].rows, DATASETS[name].features)
    assert X.dtype == y.dtype == np.float32


def test_fingerprint_is_of_the_content():
    X, y = (values.astype(np.float32) for values in make_table())
    expected = fingerprint(X, y)
    assert fingerprint(np.asfortranarray(X), y.astype(">f4")) == expected
    assert fingerprint(X.astype(np.float64), y) == expected
    assert fingerprint(X.reshape(FEATURES, ROWS), y) != expected
    X[-1, -1] = np.nextafter(X[-1, -1], np.float32(2))
    assert fingerprint(X, y) != expected


@pytest.mark.parametrize("with_bar", [True, False])
def test_download_once_then_from_the_cache(cache, server, register, monkeypatch, with_bar):
    if not with_bar:
        monkeypatch.setattr(sources, "tqdm", None)
    X, y = (values.astype(np.float32) for values in make_table())
    register(address=f"{server.address}/toy", checksum=fingerprint(X, y))
    server.files["/toy/data.csv.gz"] = zipped(as_csv(*make_table()))
    assert not data.available("toy")
    for _ in range(2):
        found = data.read("toy")
        np.testing.assert_array_equal(found[0], X)
        np.testing.assert_array_equal(found[1], y)
        assert data.available("toy")
    assert server.asked == ["/toy/data.csv.gz"]
    assert files_in(cache) == ["toy", "toy/data.npz"]


def test_the_cache_is_read_without_the_server(cache, register):
    register(address="http://127.0.0.1:9/toy")
    X, y = make_table()
    write_npz(cache / "toy" / "data.npz", X, y)
    np.testing.assert_array_equal(data.read("toy")[1], y.astype(np.float32))


def test_the_data_folder_comes_first(cache, server, register, tmp_path):
    register(address=server.address)
    X, y = make_table(1)
    write_npz(cache / "toy" / "data.npz", *make_table(2))
    write_npz(tmp_path / "data" / "toy" / "data.npz", X, y)
    np.testing.assert_array_equal(data.read("toy")[0], X.astype(np.float32))
    assert server.asked == []


def test_rows_in_two_files(cache, server, register):
    X, y = make_table()
    register(address=server.address, files=("data.csv.gz", "data1.csv.gz"))
    server.files["/data.csv.gz"] = zipped(as_csv(X[:9], y[:9]))
    server.files["/data1.csv.gz"] = zipped(as_csv(X[9:], y[9:]))
    np.testing.assert_array_equal(data.read("toy")[0], X.astype(np.float32))


def test_without_a_registered_checksum_the_first_download_counts(cache, server, register):
    register(address=server.address)
    server.files["/data.csv.gz"] = zipped(as_csv(*make_table()))
    first = fingerprint(*data.read("toy"))
    kept = cache / "toy" / "data.sha256"
    assert kept.read_text().strip() == first
    assert fingerprint(*data.read("toy")) == first

    X, y = make_table(1)
    other = fingerprint(X, y)
    write_npz(cache / "toy" / "data.npz", X, y)
    with pytest.raises(DataError, match=f"expected checksum {first}, found {other}.*removed"):
        data.read("toy")
    assert files_in(cache) == ["toy", "toy/data.sha256"]

    server.files["/data.csv.gz"] = zipped(as_csv(X, y))
    with pytest.raises(DataError, match=f"expected checksum {first}, found {other}") as error:
        data.read("toy")
    assert str(kept) in str(error.value)
    assert files_in(cache) == ["toy", "toy/data.sha256"]

    server.files["/data.csv.gz"] = zipped(as_csv(*make_table()))
    assert fingerprint(*data.read("toy")) == first


GOOD = zipped(as_csv(*make_table()))
LINES = as_csv(*make_table()).splitlines(keepends=True)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (None, "answered 404"),
        (GOOD[:-20], "not a whole gzipped CSV"),
        ((GOOD[:-20], len(GOOD)), f"expected {len(GOOD)} bytes, got {len(GOOD) - 20}"),
        (b"<html>sign in</html>", "not a whole gzipped CSV"),
        (GOOD[:30] + b"\xff" * 8 + GOOD[38:], "not a whole gzipped CSV"),
        (b"", "not a whole gzipped CSV"),
        (zipped(""), "not a whole gzipped CSV"),
        (zipped("a,b,c,d\n" + "".join(LINES)), "not a whole gzipped CSV"),
        (zipped("".join([*LINES, "1,2\n"])), "not a whole gzipped CSV"),
        (zipped("".join([*LINES[1:], "1,2,3,nan\n"])), "not finite"),
        (zipped("".join(LINES[1:])), r"expected X \(23, 3\) .*, found X \(22, 3\)"),
        (zipped(as_csv(*make_table()).replace(",", ",0,")), r"found X \(23, 6\)"),
        (
            zipped(as_csv(*make_table(1))),
            f"expected checksum {fingerprint(*make_table())}, found {fingerprint(*make_table(1))}",
        ),
    ],
)
def test_a_bad_download_is_told_and_not_kept(cache, server, register, body, complaint):
    address = f"{server.address}/toy"
    register(address=address, checksum=fingerprint(*make_table()))
    if body is not None:
        server.files["/toy/data.csv.gz"] = body
    with pytest.raises(DataError, match=complaint) as error:
        data.load("toy", 0, "train")
    assert address in str(error.value)
    assert files_in(cache) == []
    assert not data.available("toy")


def test_files_of_different_widths(cache, server, register):
    register(address=server.address, files=("data.csv.gz", "data1.csv.gz"))
    server.files["/data.csv.gz"] = GOOD
    server.files["/data1.csv.gz"] = zipped("1,2\n")
    with pytest.raises(DataError, match=r"different widths, \[2, 4\]"):
        data.read("toy")
    assert files_in(cache) == []


def test_no_connection(cache, register, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        register(address=address)
        with pytest.raises(DataError, match="could not be fetched") as error:
            data.read("toy")
    place = tmp_path / "data" / "toy" / "data.npz"
    for expected in (address, f"write {place}", "X (23 x 3) and y (23)", "TRIEGP_DATA"):
        assert expected in str(error.value)
    assert files_in(cache) == []


@pytest.mark.parametrize("name", ["houseelectric_2007h1", "etopo20", "flights3m", "blogfeedback"])
def test_tables_without_a_download_name_their_source(cache, name):
    with pytest.raises(DataError, match="there is no download") as error:
        data.read(name)
    assert DATASETS[name].source in str(error.value)
    assert f"X ({DATASETS[name].rows} x {DATASETS[name].features})" in str(error.value)


@pytest.mark.parametrize("content", ["garbage", "cut", "empty", "no y"])
@pytest.mark.parametrize("place", ["data", "cache"])
def test_a_broken_file(cache, register, tmp_path, place, content):
    register(address="http://127.0.0.1:9/toy")
    path = tmp_path / place / "toy" / "data.npz"
    X, y = make_table()
    write_npz(path, X, y)
    if content == "no y":
        np.savez(path, X=X)
    else:
        whole = path.read_bytes()
        path.write_bytes({"garbage": b"not a zip", "cut": whole[:-50], "empty": b""}[content])
    with pytest.raises(DataError, match="not an npz file with arrays X and y") as error:
        data.read("toy")
    assert str(path) in str(error.value)
    assert path.exists() == (place == "data")  # only the cache is ours to clean


@pytest.mark.parametrize("place", ["data", "cache"])
def test_a_file_with_another_table(cache, register, tmp_path, place):
    dataset = register(checksum=fingerprint(*make_table()))
    path = tmp_path / place / "toy" / "data.npz"
    write_npz(path, *make_table(1))
    with pytest.raises(DataError, match="expected checksum"):
        data.read("toy")
    assert path.exists() == (place == "data")
    write_npz(path, *make_table(1))
    DATASETS["toy"] = replace(dataset, rows=ROWS + 1)
    with pytest.raises(DataError, match=r"expected X \(24, 3\) .*, found X \(23, 3\)"):
        data.read("toy")


@pytest.mark.parametrize(
    ("platform", "variable", "folder"),
    [
        ("linux", "XDG_CACHE_HOME", ".cache"),
        ("darwin", None, "Library/Caches"),
        ("win32", "LOCALAPPDATA", "AppData/Local"),
    ],
)
def test_the_users_cache_folder(monkeypatch, tmp_path, platform, variable, folder):
    monkeypatch.delenv("TRIEGP_CACHE", raising=False)
    monkeypatch.setattr(data.sys, "platform", platform)
    for home in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(home, str(tmp_path))
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
        assert data.cache_folder() == tmp_path / "elsewhere" / "triegp"
        monkeypatch.delenv(variable)
    assert data.cache_folder() == tmp_path / folder / "triegp"


def test_the_data_folder_can_be_absent(cache, monkeypatch, tmp_path):
    monkeypatch.delenv("TRIEGP_DATA")
    monkeypatch.setattr(data, "__file__", str(tmp_path / "repository" / "bench" / "data.py"))
    assert data.data_folder() is None
    with pytest.raises(DataError) as error:
        data.read("etopo20")
    assert f"write {cache / 'etopo20' / 'data.npz'}" in str(error.value)
    (tmp_path / "shared" / "data").mkdir(parents=True)
    assert data.data_folder() == tmp_path / "shared" / "data"
