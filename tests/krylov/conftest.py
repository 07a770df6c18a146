import pytest

from ensemble.krylov._iteration import KrylovIteration


@pytest.fixture
def last_iterates(monkeypatch):
    """A sample that does not converge returns its last iterate instead of its best one."""
    monkeypatch.setattr(KrylovIteration, "return_best", lambda self, which: None)
