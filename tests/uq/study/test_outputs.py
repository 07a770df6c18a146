"""Outputs of models: names, shapes, types."""

import numpy as np
import pytest

import ensemble as en
from ensemble.uq.study.outputs import OutputError, blank, check_layout, layout_of, named_outputs, non_finite


def test_a_bare_ensemble_is_called_y():
    assert list(named_outputs(en.Ensemble(np.arange(3.0)), 3, "f")) == ["y"]


@pytest.mark.parametrize("value", [2, 2.5, True, 1j, np.float32(2.0), en.shared(np.array(2.0))])
def test_numbers_and_shared_values_are_repeated(value):
    assert named_outputs({"a": value}, 4, "f")["a"].shape == (4,)


@pytest.mark.parametrize("arrays", [False, True])
def test_an_array_is_refused_from_a_model_and_taken_by_tell(arrays):
    array = np.zeros((2, 3))
    if arrays:
        assert named_outputs({"a": array}, 3, "f", arrays=True)["a"] is array
    else:
        with pytest.raises(OutputError, match=r"f: output 'a' must be an Ensemble or a number; got an ndarray of "):
            named_outputs({"a": array}, 3, "f")


@pytest.mark.parametrize(
    "value, n, text",
    [
        (en.Ensemble(np.zeros((2, 5))), 3, r"output 'a' must have 3 samples in its last axis; got shape \(2, 5\)"),
        (np.zeros((3, 2)), 3, r"output 'a' must have 3 samples in its last axis; got shape \(3, 2\)"),
        (np.zeros((2, 1)), 3, r"output 'a' must have 3 samples in its last axis; got shape \(2, 1\)"),
        (np.array(1.0), 3, r"must have 3 samples in its last axis; got shape \(\)"),
        (np.array(["a", "b", "c"]), 3, r"output 'a' must hold numbers or bools; got dtype <U1"),
        ([1.0, 2.0, 3.0], 3, r"output 'a' must be an Ensemble, an array .* got a list"),
        (None, 3, r"got None"),
    ],
    ids=str,
)
def test_wrong_outputs_are_named_with_the_shape_seen(value, n, text):
    with pytest.raises(OutputError, match=text):
        named_outputs({"a": value}, n, "f", arrays=True)


@pytest.mark.parametrize("name", ["", "a/b", 3])
def test_names_are_texts_that_a_store_can_hold(name):
    with pytest.raises(OutputError, match="the name of an output must be a string without '/'"):
        named_outputs({name: 1.0}, 3, "f")


@pytest.mark.parametrize(
    "later, text",
    [
        ({"b": np.zeros(2)}, r"outputs must be 'a' as in the first group; got 'b'"),
        ({"a": np.zeros((3, 2))}, r"output 'a' must have shape \(\) in every sample, .* got shape \(3,\)"),
        ({"a": np.zeros(2, np.float32)}, r"output 'a' must have dtype float64 .* got dtype float32"),
    ],
    ids=["name", "shape", "dtype"],
)
def test_a_later_group_has_the_layout_of_the_first(later, text):
    with pytest.raises(OutputError, match=text):
        check_layout(layout_of({"a": np.zeros(2)}), layout_of(later), "f")


def test_samples_that_are_not_finite_are_found_by_place():
    values = np.zeros((2, 3, 5))
    values[1, 2, 3], values[0, 0, 1] = np.nan, -np.inf
    assert non_finite(values) == [1, 3]
    assert non_finite(values[0, 0]) == [1] and non_finite(np.zeros(3, int)) == []
    assert non_finite(np.zeros((0, 4))) == [] and non_finite(np.array([1j, np.inf * 1j])) == [1]


@pytest.mark.parametrize("dtype, value", [(float, np.nan), (np.int16, 0), (bool, False), (complex, np.nan)])
def test_blanks_are_nan_where_the_type_has_it(dtype, value):
    np.testing.assert_array_equal(blank((2,), np.dtype(dtype), 3), np.full((2, 3), value, dtype))
