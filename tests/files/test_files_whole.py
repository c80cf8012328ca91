"""Model files are written whole or not at all, and read whole or refused."""

import json
import os
import pickle
import stat

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
