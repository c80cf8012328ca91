"""Damaged files, killed saves and full disks: a short run of `make break-files`."""

import errno
import os
import sys

import pytest
from tools.break_files import FINE, campaign
from tools.kill_saves import (
    NotMountedError,
    kill_saves,
    save_over_limit,
    small_disk,
    two_models,
)
from tools.model_kinds import kept_files, write_kinds
from tools.mutations import MUTATIONS

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as on Linux")
posix_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@linux_only
def test_damaged_files_are_refused_or_well_defined(tmp_path):
    files = kept_files() | write_kinds(tmp_path, ("intervals", "shared targets"))
    found = campaign(seed=5, cases=range(400), folder=tmp_path, sources=files)
    broken = [one for one in found if one["outcome"] not in FINE]
    assert not broken, broken[0]
    assert {one["mutation"] for one in found} == set(MUTATIONS)
    assert {one["outcome"] for one in found} >= {"refused", "the same", "another model"}


@pytest.fixture(scope="module")
def models():
    return two_models()


@posix_only
def test_a_killed_save_leaves_the_old_file_or_the_new_one(models, tmp_path):
    """Link and permissions stay, and the next save removes what was left behind."""
    found = kill_saves(models, tmp_path, count=15, seed=3)
    assert found["the first file"] + found["the second file"] == 15


@posix_only
@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_save_beyond_the_largest_file_leaves_the_old_file(models, tmp_path, share):
    path = tmp_path / "m"
    models[0].save(path)
    old = path.read_bytes()
    assert save_over_limit(models[1], path, int(share * len(old))) == errno.EFBIG
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["m"]
    assert save_over_limit(models[1], path, 10**6) == 0
    assert path.read_bytes() != old


@posix_only
def test_a_save_to_a_full_disk_leaves_the_old_file(models, tmp_path):
    page = os.sysconf("SC_PAGE_SIZE")
    models[0].save(tmp_path / "m")
    old = (tmp_path / "m").read_bytes()
    pages = -(-len(old) // page)
    try:
        with small_disk(tmp_path / "disk", 2 * pages * page) as disk:
            models[0].save(disk / "m")
            (disk / "other").write_bytes(b"0" * page)
            with pytest.raises(OSError, match="No space") as caught:
                models[1].save(disk / "m")
            assert caught.value.errno == errno.ENOSPC
            assert (disk / "m").read_bytes() == old
            assert sorted(os.listdir(disk)) == ["m", "other"]
            (disk / "other").unlink()
            models[1].save(disk / "m")
            assert (disk / "m").read_bytes() != old
    except NotMountedError as error:
        pytest.skip(str(error))
