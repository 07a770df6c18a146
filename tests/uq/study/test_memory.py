"""The store of studies that keep nothing on disk."""

import numpy as np

from ensemble.uq.study.study_memory import MemoryStore


def test_outputs_are_kept_by_id_and_grow():
    store = MemoryStore(4)
    store.append(np.array([2, 0]), {"a": np.array([[2.0, 0.0], [20.0, 0.5]])}, np.zeros(2, bool), {})
    store.extend(6)
    store.append(np.array([4, 5]), {"a": np.array([[4.0, 5.0], [40.0, 50.0]])}, np.zeros(2, bool), {})
    assert store.done().tolist() == [True, False, True, False, True, True]
    np.testing.assert_array_equal(store.read("a", np.array([5, 0]))[1], [50.0, 0.5])
    assert np.all(np.isnan(store.read("a", np.array([1, 3]))))


def test_without_outputs_only_the_mask_is_kept():
    store = MemoryStore(4, keeps_outputs=False)
    store.append(np.array([1]), {"a": np.ones(1)}, np.zeros(1, bool), {})
    assert store.done().tolist() == [False, True, False, False] and list(store.blocks()) == []


def test_what_is_kept_is_a_copy():
    store, values = MemoryStore(3), np.ones(3)
    store.append(np.arange(3), {"a": values}, np.zeros(3, bool), {})
    values[:] = 7.0
    np.testing.assert_array_equal(store.read("a", np.arange(3)), np.ones(3))
