"""Ctrl-C at every instruction of writing a file."""

import os

import pytest

from presses import press_everywhere
from triegp.files.whole import write_whole


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # a file that was just opened
def test_a_save_leaves_the_old_file_or_the_new_one_and_nothing_else(tmp_path):
    path = tmp_path / "model"
    contents = set()

    def work():
        path.write_bytes(b"old")
        write_whole(path, b"new")

    for place, _ in press_everywhere(work, ["files/whole.py", "/contextlib.py"]):
        if path.exists():
            contents.add(path.read_bytes())
        assert os.listdir(tmp_path) in ([], ["model"]), place
    assert contents == {b"old", b"new"}
