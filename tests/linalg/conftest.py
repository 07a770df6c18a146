"""Fixtures that tests of matrices share."""

import pytest

from ensemble._backend import asarray_like, prototype


@pytest.fixture(params=["emulator", pytest.param("device", marks=pytest.mark.cuda)])
def put(request):
    """What moves an array to the device, which on the emulator is the CPU."""
    if request.param == "emulator":
        request.getfixturevalue("on_cpu")
        return lambda array: array
    return lambda array: None if array is None else asarray_like(array, prototype("cupy"))
