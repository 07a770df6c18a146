"""The reaper ends the process groups that stand in its table when its driver is gone."""

import signal
import subprocess
import sys

import pytest

from ensemble.uq.runs.reaper import Reaper

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups")


@pytest.fixture
def groups():
    """Three programs that sleep, each a group of its own."""
    found = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(3)]
    yield found
    for process in found:
        process.kill()
        process.wait()


def test_groups_that_have_not_ended_are_killed_with_the_pipe(groups):
    reaper = Reaper()
    for process in groups:
        reaper.begin(process.pid)
    reaper.end(groups[1].pid)
    reaper.close()
    assert [groups[k].wait(5.0) for k in (0, 2)] == [-signal.SIGKILL] * 2 and groups[1].poll() is None


def test_a_place_of_the_table_is_used_again(groups):
    reaper = Reaper()
    for process in groups:
        reaper.begin(process.pid)
        reaper.end(process.pid)
    reaper.begin(groups[0].pid)
    assert list(reaper._places.values()) == [0] and not reaper._free
    reaper.close()
    assert groups[0].wait(5.0) == -signal.SIGKILL and groups[1].poll() is None


def test_a_reaper_that_was_killed_is_started_again_with_all_groups(groups):
    reaper = Reaper()
    reaper.begin(groups[0].pid)
    reaper._process.kill()
    reaper._process.wait()
    reaper.begin(groups[1].pid)
    reaper.close()
    assert [groups[k].wait(5.0) for k in (0, 1)] == [-signal.SIGKILL] * 2
