"""Places of equal keys."""

import numpy as np
import pytest

from ensemble.uq.store.places import places_by_key


@pytest.mark.parametrize("keys", [[], [3], [3, 3], [5, 1, 5, 2, 1, 5], list(range(7))], ids=str)
def test_each_key_has_its_places(keys):
    keys = np.array(keys, dtype=np.int32)
    found = [(key, list(places)) for key, places in places_by_key(keys)]
    assert found == [(key, list(np.flatnonzero(keys == key))) for key in sorted(set(keys.tolist()))]
