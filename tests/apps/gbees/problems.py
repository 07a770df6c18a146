"""Small runs that several tests of GBEES start from."""

from ensemble.apps.gbees import Gbees
from ensemble.apps.gbees.engines.array import ArrayEngine


def backend_of(engine):
    """The backend's name for an engine under test."""
    from ensemble.apps.gbees.engines.backends import BACKENDS

    return next(name for name, backend in BACKENDS.items() if backend.engine is engine)


def oscillator(x, t, xp):
    return x[1], -x[0] - 0.3 * x[0] ** 3


def build(engine=ArrayEngine, **options):
    arguments = {"threshold": 1e-5, "backend": backend_of(engine), **options}
    return Gbees(oscillator, [0.8, 0.1], [0.04, 0.05], **arguments)
