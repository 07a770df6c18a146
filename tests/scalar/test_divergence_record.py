"""What is noted of questions to an ensemble."""

import threading

import numpy as np
import pytest

from ensemble.scalar import DivergenceError, Ensemble, divergence, record_divergence, run


def halvings(x):
    steps = 0
    while x > 1.0:
        x, steps = x / 2.0, steps + 1
    return "odd" if steps % 2 else "even"


def test_sites_counts_and_values():
    x = Ensemble(np.array([1.0, 3.0, 9.0]))
    with divergence("any"), record_divergence() as record:
        halvings(x)
    (site,) = record
    assert (site.expression, site.filename, site.kind, site.n_samples) == ("x > 1.0", __file__, "bool", 3)
    assert (site.asked, site.split) == (5, 4)
    np.testing.assert_array_equal(site.values, [0, 2, 4])
    assert len(record) == 1


def test_the_table():
    x = Ensemble(np.array([1.0, 3.0, 9.0]))
    with divergence("any"), record_divergence() as record:
        halvings(x)
        float(x - x)
    head, first, second = str(record).splitlines()
    assert head.split() == ["place", "expression", "samples", "asked", "split", "answers"]
    assert first.startswith("test_divergence_record.py:")
    assert first.endswith("x > 1.0       3        5      4      True 0 to 4 times")
    assert second.endswith("float(x - x)  3        1      0      Python float 0")
    with record_divergence() as nothing:
        pass
    assert "nothing asked" in repr(nothing)


def test_samples_of_one_signature_go_together():
    x = Ensemble(np.array([1.0, 3.0, 9.0, 2.5, 0.0]))
    with divergence("first"), record_divergence() as record:
        [x > 2.0 and True, int(x), x > 2.7 and True]
    np.testing.assert_array_equal(record.signature(), [[0, 1, 1, 1, 0], [1, 3, 4, 2, 0], [0, 1, 1, 0, 0]])
    with divergence("any"), record_divergence() as record:
        halvings(x)
    assert [group.tolist() for group in record.groups()] == [[0, 4], [1, 3], [2]]


def test_signatures_of_several_numbers_of_samples():
    with divergence("any"), record_divergence() as record:
        assert Ensemble(np.array([True, False]))
        assert Ensemble(np.array([True, False, True]))
    with pytest.raises(ValueError, match="signature: n_samples must say which sites are meant; got sites of 2 and 3"):
        record.signature()
    np.testing.assert_array_equal(record.signature(3), [[1, 0, 1]])


def test_the_question_that_raises_is_noted():
    with record_divergence() as record, pytest.raises(DivergenceError):
        halvings(Ensemble(np.array([1.0, 3.0])))
    assert (record.sites[0].asked, record.sites[0].split) == (1, 1)


def test_records_nest_and_end():
    x = Ensemble(np.array([1.0, 1.0]))
    with record_divergence() as outer:
        bool(x)
        with record_divergence() as inner:
            bool(x)
    bool(x)
    assert len(outer) == 2
    assert len(inner) == 1


def test_equal_numbers_and_nan_do_not_split():
    with record_divergence() as record:
        float(Ensemble(np.array([np.nan, np.nan])))
    assert (record.sites[0].asked, record.sites[0].split) == (1, 0)


def test_other_threads_and_runs_are_not_noted():
    x = Ensemble(np.array([1.0, 3.0]))
    with record_divergence() as record:
        thread = threading.Thread(target=lambda: bool(x))
        thread.start()
        thread.join()
        run(halvings, x)
    assert not record.sites
