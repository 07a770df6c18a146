"""Fixture of the tests on several ranks."""

import pytest

from tests.distributed import runner


@pytest.fixture(scope="session")
def mpi():
    """``mpi(function, ranks, *arguments, limit=60.0)``: the values of ``function(comm, *arguments)``, one a rank."""
    if runner.launcher() is None:
        pytest.skip("no mpiexec or no mpi4py: pip install '.[mpi]'")
    return runner.run_on_ranks
