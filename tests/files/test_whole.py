"""Files that are written completely or not at all."""

import os
import threading

import pytest

from triegp.files.whole import open_whole, write_whole


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, b"new")
    assert os.listdir(tmp_path) == []


def test_nothing_is_there_before_the_end(tmp_path):
    path = tmp_path / "f"
    with open_whole(path) as file:
        file.write(b"some")
        assert not path.exists()
    assert path.read_bytes() == b"some"


def test_a_block_that_raises_leaves_the_old_file(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def write():
        with open_whole(path) as file:
            file.write(b"new")
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    got = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    write_whole(path, b"new")
    reader.join()
    assert got == [b"new"]
    assert path.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]
