"""The engines that exist; every test of the step itself takes them all."""

import pytest

from ensemble.apps.gbees.array_engine import ArrayEngine

ENGINES = {"array": ArrayEngine}


@pytest.fixture(params=sorted(ENGINES))
def engine(request):
    return ENGINES[request.param]
