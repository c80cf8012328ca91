"""The tables: sizes, checksums, public addresses, and their download.

A checksum is over the content as float32, so it does not depend on how a table is stored.
"""

import gzip
import hashlib
import http.client
import urllib.error
import urllib.request
import warnings
import zlib
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None

TIMEOUT = 60  # seconds to connect, and between two blocks
COLLECTION = "https://github.com/treforevans/uci_datasets"


class DataError(RuntimeError):
    """A table that cannot be loaded, or is not the one expected."""


@dataclass(frozen=True)
class Dataset:
    """A table of rows x features and one target.

    name, paper : name here, and in the paper (or None).
    address : folder of the gzipped CSV `files` (no header, target last), or None: no download.
    checksum : `fingerprint` of the content, or None where it is not known.
    source : where the original is found.
    """

    name: str
    paper: str | None
    rows: int
    features: int
    address: str | None
    checksum: str | None = None
    source: str = COLLECTION
    files: tuple[str, ...] = ("data.csv.gz",)


_CHECKSUMS = {
    "pol": "6e93e88ee1d89ec97770d904f5d6aea3bcc368ea6ebff2831c04768a530d86be",
    "elevators": "ce18f98893df65261a19e46007981bbcd01a4613816fce10f6a1099e2861c834",
    "bike": "a609238aa1229f547c16d52af4e78fea8467231c7a8812904a77a00bee7a2afd",
    "kin40k": "6dae07468490cfe2ddb5af4f0b07fa4a9303266a2c58c6b0f0eaa9bca7abc25c",
    "protein": "604f894f205f5c504c391425b92596c49afd1109e86c7bd59ba27dca4eb05c37",
    "keggdirected": "fb245047e101c20e1332b85fb2cd3052d26ff4dcad123f1c8c4cf173659215af",
    "keggundirected": "7375e9e8c54e6e8e019f6f4532d6be061a025119fad639756f4e813a7fc2fb21",
    "airfoil": "50646616741e3c7994c5f80cb2e98807f939205f5965c1239161e6a8dcb4899d",
    "concrete": "7da2fa95eeb4c2f71bfbef7e1e9030387d66cbfcd2a4ca094d3e81867fec3842",
    "energy": "f9a236d4a8285ebdeca1f693039ff510a09d40b1803342a1777ebaa1f82e1c90",
    "yacht": "ceef346062908224e222c4d7a59462274cab90590ce3767b4ec38782d0af7e16",
    "wine": "6eaa1a41a01a7bb8d6c64ad63c28de7a2d1a4266b599ab2c55c413ec54a376f2",
    "houseelectric_2007h1": "1b044f6d8d88904adcc8a6278f4b385054c749bc1d224ad1741e26786e62ca2e",
    "etopo20": "2b7dd315b3608c73a2f02f5094ec43a648e9a993e31c77fd015d1f0054361ac5",
    "flights3m": "2b514caf15b1e9ff2d05978fe41648d5cb1b7f5a02b8774c164d97e49eba6dc7",
    "blogfeedback": "91803aee50c180105df433317d9c9982f6cdac90b394d2acb13f0b79de0dfa44",
}


def _collection(name, paper, rows, features, files=("data.csv.gz",)):
    # This route serves the file itself whether or not it is in Git's large file storage.
    address = f"{COLLECTION}/raw/master/uci_datasets/{name}"
    return Dataset(name, paper, rows, features, address, _CHECKSUMS.get(name), files=files)


def _local(name, rows, features, source):
    return Dataset(name, None, rows, features, None, _CHECKSUMS[name], source)


_TABLES = (
    _collection("pol", "PoleTele", 15_000, 26),
    _collection("elevators", "Elevators", 16_599, 18),
    _collection("bike", "Bike", 17_379, 17),
    _collection("kin40k", "Kin40k", 40_000, 8),
    _collection("protein", "Protein", 45_730, 9),
    _collection("keggdirected", "KeggDir", 48_827, 20),
    _collection("slice", "CTslice", 53_500, 385),
    _collection("keggundirected", "KEGGU", 63_608, 27),
    _collection("3droad", "3DRoad", 434_874, 3),
    _collection("song", "Song", 515_345, 90, ("data.csv.gz", "data1.csv.gz")),
    _collection("buzz", "Buzz", 583_250, 77),
    _collection("houseelectric", "HouseElec", 2_049_280, 11),
    _collection("airfoil", None, 1_503, 5),
    _collection("concrete", None, 1_030, 8),
    _collection("energy", None, 768, 8),
    _collection("yacht", None, 308, 6),
    _collection("wine", None, 1_599, 11),
    _local(
        "houseelectric_2007h1",
        256_869,
        11,
        "UCI, https://archive.ics.uci.edu/dataset/235, January to June 2007; columns day, month, "
        "year, hour, minute, reactive power, voltage, intensity, sub-metering 1 to 3; target "
        "active power",
    ),
    _local(
        "etopo20",
        583_200,
        2,
        "ETOPO, in https://github.com/matplotlib/basemap; columns longitude, latitude; target "
        "elevation",
    ),
    _local(
        "flights3m",
        3_000_000,
        8,
        "https://github.com/vega/vega-datasets, flights of 2001; columns day of year, weekday, "
        "minute of day, distance, coordinates of origin and of destination; target delay",
    ),
    _local("blogfeedback", 60_021, 280, "UCI, https://archive.ics.uci.edu/dataset/304"),
)
DATASETS = {dataset.name: dataset for dataset in _TABLES}


def fingerprint(X, y):
    """SHA-256, in hex, of X's shape (int64), X and y (float32), little-endian, in C order."""
    digest = hashlib.sha256(np.array(X.shape, "<i8").tobytes())
    for values in (X, y):
        digest.update(np.ascontiguousarray(values, "<f4"))
    return digest.hexdigest()


def check(dataset, X, y, checksum, where):
    """Raise DataError unless X and y have the registered sizes and, if given, the checksum."""
    expected = f"X ({dataset.rows}, {dataset.features}) and y ({dataset.rows},)"
    found = f"X {X.shape} and y {y.shape}"
    if found != expected:
        raise DataError(f"{where} is not {dataset.name}: expected {expected}, found {found}")
    if checksum is not None and (found := fingerprint(X, y)) != checksum:
        raise DataError(
            f"{where} is not {dataset.name}: expected checksum {checksum}, found {found}"
        )


def download(dataset, folder):
    """X (rows x features) and y (rows), float32, from the public address; files go to folder."""
    tables = []
    for file in dataset.files:
        address = f"{dataset.address}/{file}"
        fetch(address, folder / file)
        tables.append(parse(folder / file, address))
    widths = {table.shape[1] for table in tables}
    if len(widths) > 1:
        raise DataError(f"{dataset.address}: files of different widths, {sorted(widths)}")
    table = tables.pop() if len(tables) == 1 else np.concatenate(tables)
    if not np.isfinite(table).all():
        raise DataError(f"{dataset.address} has values that are not finite")
    return np.ascontiguousarray(table[:, :-1]), table[:, -1].copy()


def fetch(address, path):
    """Write what is at the address to path, or raise DataError."""
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as response, path.open("wb") as file:
            size = response.headers.get("Content-Length")
            size = None if size is None else int(size)
            with _progress_bar(address, size) as bar:
                while block := response.read(1 << 20):
                    file.write(block)
                    if bar is not None:
                        bar.update(len(block))
            if size is not None and file.tell() != size:
                raise DataError(f"{address} broke off: expected {size} bytes, got {file.tell()}")
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"{address} answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"{address} could not be fetched: {error}") from error


def _progress_bar(address, size):
    if tqdm is None:
        return nullcontext()
    name = "/".join(address.split("/")[-2:])
    return tqdm(desc=name, total=size, unit="B", unit_scale=True, disable=None)  # terminals only


def parse(path, address):
    """The numbers of a gzipped CSV without header, (rows, columns) float32, or DataError."""
    try:
        with warnings.catch_warnings(), gzip.open(path, "rt", encoding="ascii") as file:
            warnings.simplefilter("error", UserWarning)  # an empty file only warns
            return np.loadtxt(file, np.float32, delimiter=",", comments=None, ndmin=2)
    except (OSError, EOFError, zlib.error, ValueError, UserWarning) as error:
        raise DataError(f"{address} is not a whole gzipped CSV of numbers: {error}") from error
