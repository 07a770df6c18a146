"""The engines that exist; every test of the step itself takes them all."""

from pathlib import Path

import pytest

from ensemble.apps.gbees.engines.array import ArrayEngine
from ensemble.apps.gbees.engines.cpu import CompiledEngine

ENGINES = {"array": ArrayEngine, "compiled": CompiledEngine}


@pytest.fixture(params=sorted(ENGINES))
def engine(request):
    return ENGINES[request.param]


@pytest.fixture(params=["array", pytest.param("compiled", marks=pytest.mark.slow)])
def patient_engine(request):
    """The same for dimensions and limiters that no other test has: their loops take some seconds to compile."""
    return ENGINES[request.param]


def pytest_collection_modifyitems(items):
    """Tests run on coarse grids on purpose; those of the warnings catch them all the same."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:Gbees.advance:ensemble.apps.gbees.GridWarning"))
