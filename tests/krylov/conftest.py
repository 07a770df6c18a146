import pytest

from ensemble.krylov._run import Run


@pytest.fixture
def last_iterates(monkeypatch):
    """A sample that does not converge returns its last iterate instead of its best one."""
    monkeypatch.setattr(Run, "choose_best", lambda self, which: None)
