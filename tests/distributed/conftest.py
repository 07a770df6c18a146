"""Fixture of the tests on several ranks."""

import pytest

from tests.distributed import runner


@pytest.fixture(scope="session")
def mpi():
    """``mpi(function, ranks, *arguments, limit=60.0, fresh=False)``: ``function(comm, *arguments)`` of each rank."""
    if runner.launcher() is None:
        pytest.skip("no mpiexec or no mpi4py: pip install '.[mpi]'")
    yield runner.run_on_ranks
    runner.end_all()
