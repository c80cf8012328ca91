"""Model files are written whole or not at all, and read whole or refused."""

import json
import math
import os
import pickle
import stat
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy

import triegp
from model_files import MODELS, refused
from triegp.files.container import FORMAT


@pytest.fixture(scope="module")
def plain():
    return MODELS["plain"]()


@pytest.fixture(scope="module")
def whole(plain, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "model.triegp"
    plain.save(path)
    return path.read_bytes()


# Writing


def test_a_file_is_replaced_whole(plain, whole, tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    plain.save(str(path))
    assert path.read_bytes() == whole
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize("fails", ["os.fsync", "os.replace", "triegp.files.container.save"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    plain, tmp_path, monkeypatch, fails
):
    path = tmp_path / "m"
    path.write_bytes(b"old")

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(fails, fail)
    with pytest.raises(OSError, match="disk full"):
        plain.save(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m"]


def test_a_folder_that_is_not_there(plain, tmp_path):
    with pytest.raises(FileNotFoundError):
        plain.save(tmp_path / "no" / "m")


@pytest.mark.skipif(os.name != "posix", reason="modes are posix")
def test_a_file_is_as_readable_as_any_new_file(plain, tmp_path):
    plain.save(tmp_path / "m")
    (tmp_path / "other").write_bytes(b"")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("m", "other")}
    assert len(modes) == 1


# What is no model file


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        triegp.load(tmp_path / "m")


def test_truncated_at_any_length(whole, tmp_path):
    path = tmp_path / "m"
    lengths = {*range(40), *range(40, len(whole), 97), len(whole) - 8, len(whole) - 1}
    for length in sorted(lengths):
        path.write_bytes(whole[:length])
        refused(path)
    path.write_bytes(whole + b"\0")
    refused(path)


@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_a_flipped_bit_anywhere(whole, tmp_path, flip):
    path = tmp_path / "m"
    header_end = 8 + int.from_bytes(whole[:8], "little")
    for place in [*range(0, header_end, 23), *range(header_end, len(whole), 151)]:
        edited = bytearray(whole)
        edited[place] ^= flip
        path.write_bytes(edited)
        refused(path)


class Bomb:
    """Says so when it is unpickled."""

    gone_off = False

    def __reduce__(self):
        return setattr, (Bomb, "gone_off", True)


def test_a_pickle_is_refused_and_not_executed(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(pickle.dumps(Bomb()))
    refused(path, "not a model file")
    assert not Bomb.gone_off
    pickle.loads(path.read_bytes())
    assert Bomb.gone_off


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"{}", b"\xff" * 64, b"PK\x03\x04" * 50, (2).to_bytes(8, "little") + b"{}"],
)
def test_foreign_bytes(tmp_path, content):
    path = tmp_path / "m"
    path.write_bytes(content)
    refused(path)


def test_other_safetensors_files(tmp_path):
    path = tmp_path / "m"
    safetensors.numpy.save_file({"x": np.zeros(3)}, path)
    refused(path, "not a triegp model")
    safetensors.numpy.save_file({"x": np.zeros(3)}, path, {"format": "pt"})
    refused(path, "not a triegp model")
    text = json.dumps({"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 4)
    refused(path, "not a triegp model")


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", "3", "{}", '"version"', "[" * 100_000, '{"version": 1e999}']
)
def test_headers_that_cannot_be_read(tmp_path, text):
    path = tmp_path / "m"
    safetensors.numpy.save_file({"x": np.zeros(3)}, path, {FORMAT: text})
    refused(path)


# What is at the path already


def test_files_of_killed_saves_are_removed_by_the_next(plain, whole, tmp_path):
    path = tmp_path / "m"
    code = (
        "import os, signal, sys; import triegp.files.container as c; "
        "os.replace = lambda *a: os.kill(os.getpid(), signal.SIGKILL); "
        "c.write_file(sys.argv[1], {}, {})"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    (tmp_path / ".m.b.01234567.part").touch()  # of a save to m.b
    assert len(os.listdir(tmp_path)) == 2
    plain.save(path)
    assert sorted(os.listdir(tmp_path)) == [".m.b.01234567.part", "m"]
    assert path.read_bytes() == whole


def test_saves_at_the_same_time_do_not_remove_each_other(plain, whole, tmp_path, monkeypatch):
    path, real = tmp_path / "m", os.replace
    saves = []

    def replace(part, target):
        if not saves:  # another save begins and ends while this one is not done
            saves.append(part)
            plain.save(path)
            assert os.path.exists(part)
        real(part, target)

    monkeypatch.setattr(os, "replace", replace)
    plain.save(path)
    assert saves
    assert path.read_bytes() == whole
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_a_link(plain, whole, tmp_path, exists):
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.parent.mkdir()
    if exists:
        target.write_bytes(b"old")
    try:
        link.symlink_to(target)
    except OSError:
        pytest.skip("links cannot be made here")
    plain.save(link)
    assert link.is_symlink()
    assert target.read_bytes() == whole
    assert not target.is_symlink()
    assert os.listdir(target.parent) == ["target"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("mode", [0o600, 0o666, 0o640])
def test_permissions_of_a_file_are_kept(plain, whole, tmp_path, monkeypatch, mode):
    path, real, seen = tmp_path / "m", os.fsync, []
    path.touch()
    path.chmod(mode)

    def fsync(number):
        seen.append(stat.S_IMODE(os.fstat(number).st_mode))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    plain.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert seen == [mode]  # while it is written, too
    assert path.read_bytes() == whole


# Sizes


SIGNED = json.dumps({"sha256": "0" * 64, "version": 1, "estimator": "TrieGPRegressor"})


def claim(path, shape, text=SIGNED, begin=b""):
    """A file that claims an array of this shape, and has it: `begin`, then zeros not on disk."""
    entry = {"dtype": "F64", "shape": shape, "data_offsets": [0, 8 * math.prod(shape)]}
    header = json.dumps({"__metadata__": {FORMAT: text}, "a": entry}).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        end = file.tell() + 8 * math.prod(shape)
        file.write(begin)
        file.truncate(end)


def test_a_file_larger_than_the_memory_is_not_read(tmp_path, monkeypatch):
    claim(tmp_path / "m", [2**20])
    real = os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: 1000 if name == "SC_PHYS_PAGES" else real(name))
    monkeypatch.setattr(np, "empty", None)
    with pytest.raises(MemoryError, match=r"needs about 0\.00839 GB of memory, this machine has"):
        triegp.load(tmp_path / "m")


@pytest.mark.skipif(sys.platform != "linux", reason="holes are looked for on Linux")
def test_a_file_of_holes_is_not_read(tmp_path, monkeypatch):
    claim(tmp_path / "m", [2**27])
    monkeypatch.setattr(np, "empty", None)
    refused(tmp_path / "m", r"[\d,]+ of 1,073,742,\d+ bytes are on disk, the rest are holes")


def test_a_file_with_holes_is_read(tmp_path):
    """Copies may leave zeros out, and so do file systems that compress."""
    claim(tmp_path / "m", [2**24], begin=b"x" * 2**18)
    refused(tmp_path / "m", "its digest does not match")  # all of it was read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"version": 1, "estimator": "TrieGPRegressor"}', "it has no digest"),
        (json.dumps({"sha256": "0" * 64, "version": 1}), "holds None, expected one of"),
    ],
)
def test_a_file_that_is_no_model_by_its_header_is_not_read(tmp_path, monkeypatch, text, said):
    claim(tmp_path / "m", [2**20], text)
    monkeypatch.setattr(np, "empty", None)
    refused(tmp_path / "m", said)


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited as on Linux")
@pytest.mark.parametrize("spare", [2**26, 2**29])
def test_memory_that_is_limited_ends_in_a_memory_error(tmp_path, spare):
    """Whether the check sees it or the array cannot be made: never a panic of a library."""
    claim(tmp_path / "m", [2**28])
    code = f"""if True:
        import os, resource, sys, triegp
        from triegp.estimators import loading
        from triegp.files import container
        container.refuse_holes = lambda file: None
        used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**31 - {spare},) * 2)
        try:
            triegp.load(sys.argv[1])
        except MemoryError:
            print("MemoryError")
        """
    command = [sys.executable, "-c", code, str(tmp_path / "m")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("MemoryError\n", "")


@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [3], "data_offsets": [0, 16]},
        {"shape": [2], "data_offsets": [8, 24]},
        {"shape": [-2], "data_offsets": [0, 16]},
        {"shape": [2.0], "data_offsets": [0, 16]},
        {"shape": 2, "data_offsets": [0, 16]},
        {"shape": [2], "data_offsets": [0, 16], "dtype": "F4"},
        {"shape": [1], "data_offsets": [0, 8]},
        {},
        None,
    ],
)
def test_arrays_that_do_not_fill_the_file(tmp_path, entry):
    text = json.dumps({"sha256": "0" * 64, "version": 1})
    stored = entry and {"dtype": "F64", **entry}
    header = json.dumps({"__metadata__": {FORMAT: text}, "a": stored}).encode()
    (tmp_path / "m").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    refused(tmp_path / "m", "is not a model file, or is truncated")
