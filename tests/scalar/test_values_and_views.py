"""What is a value, a view, a copy: writing into a result changes an ensemble exactly where it changes NumPy's array."""

import warnings

import numpy as np
import pytest

from ensemble.scalar import Ensemble, run
from tests.walked import every

RNG = np.random.default_rng(50417)
MATRIX = RNG.normal(size=(3, 4, 3))
LINE = RNG.normal(size=(5, 3))
ONE = RNG.normal(size=(1, 3))
CUBE = RNG.normal(size=(2, 1, 3, 3))
SQUARE = RNG.normal(size=(4, 4, 3))
COMPLEX = RNG.normal(size=(4, 3)) + 1j * RNG.normal(size=(4, 3))
PADDED = np.array([[0.0] * 3, [1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [0.0] * 3])

stride_tricks = np.lib.stride_tricks

FORMS = {
    # reshaped
    "ravel": (MATRIX, np.ravel),
    "x.ravel": (MATRIX, lambda x: x.ravel()),
    "flatten": (MATRIX, lambda x: x.flatten()),
    "ravel of a transpose": (MATRIX, lambda x: x.T.ravel()),
    "ravel F": (MATRIX, lambda x: np.ravel(x, order="F")),
    "reshape": (MATRIX, lambda x: x.reshape(2, 6)),
    "np.reshape": (MATRIX, lambda x: np.reshape(x, (6, 2))),
    "reshape of a transpose": (MATRIX, lambda x: x.T.reshape(2, 6)),
    "to no axis": (ONE, lambda x: x.reshape(())),
    "reshape copy": (MATRIX, lambda x: np.reshape(x, (2, 6), copy=True)),
    "reshape F": (LINE, lambda x: np.reshape(x, (5, 1), order="F")),
    "xp.reshape": (MATRIX, lambda x: np.reshape(x, -1)),
    # axes added, taken away, moved
    "atleast_1d": (LINE, np.atleast_1d),
    "atleast_2d": (LINE, np.atleast_2d),
    "atleast_3d": (MATRIX, np.atleast_3d),
    "atleast_1d of two": (LINE, lambda x: np.atleast_1d(x, 1.0)[0]),
    "expand_dims": (LINE, lambda x: np.expand_dims(x, 0)),
    "expand_dims of two": (LINE, lambda x: np.expand_dims(x, (0, 2))),
    "x[None]": (LINE, lambda x: x[None]),
    "x[:, None]": (LINE, lambda x: x[:, None]),
    "squeeze": (CUBE, np.squeeze),
    "x.squeeze": (CUBE, lambda x: x.squeeze(1)),
    "squeeze to no axis": (ONE, np.squeeze),
    "transpose": (MATRIX, np.transpose),
    "x.T": (MATRIX, lambda x: x.T),
    "x.mT": (MATRIX, lambda x: x.mT),
    "x.transpose": (CUBE, lambda x: x.transpose(2, 0, 1)),
    "T of a vector": (LINE, lambda x: x.T),
    "permute_dims": (MATRIX, lambda x: np.permute_dims(x, (1, 0))),
    "matrix_transpose": (MATRIX, np.matrix_transpose),
    "linalg.matrix_transpose": (MATRIX, np.linalg.matrix_transpose),
    "swapaxes": (CUBE, lambda x: np.swapaxes(x, 0, 2)),
    "x.swapaxes": (CUBE, lambda x: x.swapaxes(0, 2)),
    "moveaxis": (CUBE, lambda x: np.moveaxis(x, 0, -1)),
    "rollaxis": (CUBE, lambda x: np.rollaxis(x, 2)),
    # parts
    "row": (MATRIX, lambda x: x[1]),
    "entry": (LINE, lambda x: x[1]),
    "entry of two": (MATRIX, lambda x: x[1, 2]),
    "entry as an array": (LINE, lambda x: x[1, ...]),
    "entry of two as an array": (MATRIX, lambda x: x[1, 2, ...]),
    "column": (MATRIX, lambda x: x[:, 1]),
    "slice": (LINE, lambda x: x[1:4]),
    "steps": (LINE, lambda x: x[::2]),
    "backwards": (LINE, lambda x: x[::-1]),
    "everything": (MATRIX, lambda x: x[...]),
    "x[()]": (MATRIX, lambda x: x[()]),
    "list": (LINE, lambda x: x[[0, 2]]),
    "mask": (LINE, lambda x: x[np.array([True, False, True, False, True])]),
    "list and slice": (MATRIX, lambda x: x[[0, 1], :2]),
    "integer array without axes": (MATRIX, lambda x: x[np.array(1)]),
    "row of a row": (CUBE, lambda x: x[1][0][1:]),
    "iteration": (MATRIX, lambda x: next(iter(x))),
    "take": (MATRIX, lambda x: np.take(x, [0, 1], 0)),
    "x.take": (LINE, lambda x: x.take([0])),
    "compress": (LINE, lambda x: np.compress([1, 0, 1], x)),
    "split": (LINE, lambda x: np.split(x, [2])[1]),
    "array_split": (LINE, lambda x: np.array_split(x, 2)[0]),
    "hsplit": (MATRIX, lambda x: np.hsplit(x, 2)[1]),
    "vsplit": (MATRIX, lambda x: np.vsplit(x, 3)[1]),
    "dsplit": (CUBE, lambda x: np.dsplit(x, 3)[1]),
    "unstack": (MATRIX, lambda x: np.unstack(x)[1]),
    "unstack of a vector": (LINE, lambda x: np.unstack(x)[1]),
    "diagonal": (SQUARE, np.diagonal),
    "x.diagonal": (SQUARE, lambda x: x.diagonal(1)),
    "diag": (SQUARE, np.diag),
    "diag of a vector": (LINE, np.diag),
    "linalg.diagonal": (SQUARE, np.linalg.diagonal),
    "diagflat": (LINE, np.diagflat),
    "einsum diagonal": (SQUARE, lambda x: np.einsum("ii->i", x)),
    "einsum transpose": (MATRIX, lambda x: np.einsum("ij->ji", x)),
    "real": (LINE, lambda x: x.real),
    "np.real": (LINE, np.real),
    "imag": (LINE, lambda x: x.imag),
    "np.imag": (LINE, np.imag),
    "complex real": (COMPLEX, lambda x: x.real),
    "complex imag": (COMPLEX, np.imag),
    "trim_zeros": (PADDED, np.trim_zeros),
    # order
    "flip": (MATRIX, np.flip),
    "flip 1": (MATRIX, lambda x: np.flip(x, 1)),
    "fliplr": (MATRIX, np.fliplr),
    "flipud": (LINE, np.flipud),
    "rot90": (MATRIX, np.rot90),
    "rot90 twice": (MATRIX, lambda x: np.rot90(x, 2)),
    "rot90 no time": (MATRIX, lambda x: np.rot90(x, 0)),
    "roll": (LINE, lambda x: np.roll(x, 1)),
    "sort": (LINE, np.sort),
    # broadcast
    "broadcast_to": (LINE, lambda x: np.broadcast_to(x, (2, 5))),
    "meshgrid": (LINE, lambda x: np.meshgrid(x, [1.0, 2.0])[0]),
    "row of a meshgrid": (LINE, lambda x: np.meshgrid([1.0, 2.0], x)[1][1]),
    "meshgrid without a copy": (LINE, lambda x: np.meshgrid(x, [1.0], copy=False)[0]),
    "meshgrid ij": (LINE, lambda x: np.meshgrid(x, [1.0, 2.0], indexing="ij")[0][2]),
    "sparse meshgrid": (LINE, lambda x: np.meshgrid(x, [1.0, 2.0], sparse=True)[0]),
    "sparse meshgrid without a copy": (LINE, lambda x: np.meshgrid(x, [1.0, 2.0], sparse=True, copy=False)[0]),
    "broadcast_arrays": (LINE, lambda x: np.broadcast_arrays(x, np.ones((2, 5)))[0]),
    "sliding_window_view": (LINE, lambda x: stride_tricks.sliding_window_view(x, 2)),
    "writable windows": (LINE, lambda x: stride_tricks.sliding_window_view(x, 2, writeable=True)),
    # copies and arithmetic
    "copy": (LINE, lambda x: x.copy()),
    "np.copy": (LINE, np.copy),
    "astype": (LINE, lambda x: x.astype(float)),
    "astype without a copy": (LINE, lambda x: x.astype(float, copy=False)),
    "+x": (LINE, lambda x: +x),
    "conj": (LINE, np.conj),
    "x.conj": (LINE, lambda x: x.conj()),
    "round": (LINE, np.round),
    "clip": (LINE, lambda x: np.clip(x, -9, 9)),
    "maximum": (LINE, lambda x: np.maximum(x, -9)),
    "where": (LINE, lambda x: np.where(True, x, x)),
    "nan_to_num": (LINE, np.nan_to_num),
    "nan_to_num without a copy": (LINE, lambda x: np.nan_to_num(x, copy=False)),
    "concatenate of one": (LINE, lambda x: np.concatenate([x])),
    "stack of one": (LINE, lambda x: np.stack([x])),
    "hstack of one": (LINE, lambda x: np.hstack([x])),
    "block of one": (LINE, lambda x: np.block([x])),
    "tile": (LINE, lambda x: np.tile(x, 1)),
    "repeat": (LINE, lambda x: np.repeat(x, 1)),
    "resize": (LINE, lambda x: np.resize(x, 5)),
    "pad nothing": (LINE, lambda x: np.pad(x, 0)),
    "delete nothing": (LINE, lambda x: np.delete(x, [])),
    "insert nothing": (LINE, lambda x: np.insert(x, [], [])),
    "tril": (SQUARE, lambda x: np.tril(x, 9)),
    "fftshift": (LINE, np.fft.fftshift),
    "diff none": (LINE, lambda x: np.diff(x, 0)),
    "cumsum": (ONE, np.cumsum),
    "sum over no axis": (LINE, lambda x: np.sum(x, axis=())),
    "max over no axis": (LINE, lambda x: np.max(x, axis=())),
    "mean over one": (ONE, lambda x: np.mean(x, axis=0)),
    "zeros_like": (LINE, np.zeros_like),
    "unwrap": (LINE, np.unwrap),
    "real_if_close": (LINE, np.real_if_close),
    "sum of one": (ONE, sum),
    "ediff1d": (LINE, np.ediff1d),
    "select": (LINE, lambda x: np.select([x > -9], [x])),
    "flat": (MATRIX, lambda x: x.flat[2:4]),
    "flat entry": (MATRIX, lambda x: x.flat[3]),
}

READ_ONLY_HERE = {
    "complex real",
    "complex imag",
    "meshgrid without a copy",
    "real_if_close",
    "trim_zeros",
    "broadcast_arrays",
}
"""Views that cannot be views of all samples at once: they refuse to be written into."""


def changed(r):
    r += 100.0
    return r


def written(r):
    r[...] = 7.0
    return r


def filled(r):
    r.fill(3.0)
    return r


WAYS = {"in place": changed, "assignment": written, "fill": filled}


def outcome(memory, form, way, convert):
    """The array after `way` was done to its `form`, and the form; the error where that is refused."""
    x = convert(memory.copy())
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        r = form(x)
        try:
            r = way(r)
        except (ValueError, TypeError) as error:
            return x, error
    return x, r


@every("way", WAYS)
@every("name", FORMS)
def test_a_write_into_a_result_goes_where_numpys_goes(name, way):
    memory, form = FORMS[name]
    x, r = outcome(memory, form, WAYS[way], Ensemble)
    for s in range(3):
        alone, theirs = outcome(memory[..., s], form, WAYS[way], lambda a: a)
        if isinstance(r, Exception) and (name in READ_ONLY_HERE or isinstance(theirs, Exception)):
            np.testing.assert_array_equal(x.samples, memory)
            continue
        assert not isinstance(r, Exception), r
        if isinstance(theirs, Exception):  # NumPy's scalars take no assignment; a value may, outside `run`
            assert r.ndim == 0
        else:
            np.testing.assert_array_equal(r.sample(s), theirs)
        np.testing.assert_array_equal(x.sample(s), alone)


VALUE = np.array([1.5, -2.0, 3.25])

VALUE_FORMS = {
    "atleast_1d": np.atleast_1d,
    "atleast_2d": np.atleast_2d,
    "atleast_3d": np.atleast_3d,
    "ravel": np.ravel,
    "x.ravel": lambda v: v.ravel(),
    "reshape": lambda v: np.reshape(v, (1,)),
    "x.reshape": lambda v: v.reshape(-1),
    "to no axis": lambda v: v.reshape(()),
    "x[None]": lambda v: v[None],
    "x[..., None]": lambda v: v[..., None],
    "x[...]": lambda v: v[...],
    "x[()]": lambda v: v[()],
    "expand_dims": lambda v: np.expand_dims(v, 0),
    "flatten": lambda v: v.flatten(),
    "squeeze": np.squeeze,
    "transpose": np.transpose,
    "T": lambda v: v.T,
    "real": np.real,
    "x.real": lambda v: v.real,
    "imag": lambda v: v.imag,
    "broadcast_to": lambda v: np.broadcast_to(v, (2,)),
    "meshgrid": lambda v: np.meshgrid(v, [1.0, 2.0])[0],
    "hstack": lambda v: np.hstack([v]),
    "stack": lambda v: np.stack([v, v]),
    "copy": lambda v: v.copy(),
    "np.copy": np.copy,
    "astype": lambda v: v.astype(float, copy=False),
    "diag": lambda v: np.diag(v[None]),
    "itself": lambda v: v,
    "zeros_like": np.zeros_like,
    "full_like": lambda v: np.full_like(v, 2.0),
    "where": lambda v: np.where(v > 0, v, 1.0),
    "array_split": lambda v: np.array_split(v[None], 1)[0],
    "flip": np.flip,
    "swapaxes": lambda v: np.swapaxes(v[None, None], 0, 1),
}


def used(form, way):
    def f(v):
        v = v * 1.0
        r = form(v)
        other = r  # a second name shows whether the result is an array that changes, or a value that is replaced
        try:
            r = way(r)
        except (TypeError, ValueError):  # NumPy's scalars take no assignment
            return v, v, v
        return v, other, r

    return f


@pytest.mark.parametrize("way", ["in place", "fill"])
@pytest.mark.parametrize("name", VALUE_FORMS)
def test_a_value_without_axes_is_never_changed_through_its_forms(name, way):
    f = used(VALUE_FORMS[name], WAYS[way])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        direct, carried = f(Ensemble(VALUE)), run(f, Ensemble(VALUE)).value
        for s in range(3):
            for mine, together, alone in zip(direct, carried, f(VALUE[s]), strict=True):
                np.testing.assert_array_equal(np.squeeze(mine.sample(s)), np.squeeze(alone))
                np.testing.assert_array_equal(np.squeeze(together.sample(s)), np.squeeze(alone))


def test_an_assignment_to_a_value_fails_in_a_run_as_it_does_alone():
    def f(v):
        v[v < 2.0] = 2.0
        return v

    x = Ensemble(VALUE.copy())
    result = run(f, x)
    assert all(isinstance(error, TypeError) for error in result.errors.values()) and len(result.errors) == 3
    np.testing.assert_array_equal(x.samples, VALUE)


def test_a_caller_keeps_the_value_that_a_function_lifts_to_an_array():
    def clipped(t):
        t = np.atleast_1d(t)
        t[t < 2.0] = 2.0
        return t.sum()

    x = Ensemble(VALUE.copy())
    np.testing.assert_array_equal(clipped(x).samples, [2.0, 2.0, 3.25])
    np.testing.assert_array_equal(x.samples, VALUE)


def test_an_array_without_axes_changes_under_all_of_its_names():
    x = Ensemble(LINE.copy())
    entry = x[2, ...]
    alias = entry
    alias += 1.0
    np.testing.assert_array_equal(x.samples[2], LINE[2] + 1.0)
    np.testing.assert_array_equal(entry.samples, LINE[2] + 1.0)


def test_a_part_that_each_sample_takes_from_its_own_place_follows_its_array():
    x, k = Ensemble(MATRIX.copy()), Ensemble(np.array([0, 2, 1]))
    row = x[k]
    part, entry = row[1:3], row[0]
    writes = [
        lambda a, i: a.__setitem__(0, 5.0),
        lambda a, i: a.__setitem__((i, slice(None, 2)), -1.0),
        lambda a, i: a.__imul__(2.0),
        lambda a, i: a[1:].__iadd__(1.0),
        lambda a, i: np.add(a, 1.0, out=a),
        lambda a, i: np.copyto(a, 3.0, where=a > 4.0),
        lambda a, i: np.put(a, [0, 5], 7.0),
        lambda a, i: np.add.at(a, ([0, 0], [1, 1]), 1.0),
        lambda a, i: a.flat.__setitem__(3, 9.0),
        lambda a, i: a.T.sort(0),
        lambda a, i: a.fill(2.5),
    ]
    alone = [MATRIX[..., s].copy() for s in range(3)]
    rows = [alone[s][int(k.samples[s])] for s in range(3)]
    for write in writes:
        write(x, k)
        for s in range(3):
            write(alone[s], int(k.samples[s]))
            np.testing.assert_array_equal(row.sample(s), rows[s])
            np.testing.assert_array_equal(part.sample(s), rows[s][1:3])
    np.testing.assert_array_equal(entry.samples, MATRIX[[0, 2, 1], 0, [0, 1, 2]])  # an entry is a value
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1.0


def test_parts_of_complex_numbers_follow_them_and_are_set_by_name():
    z = Ensemble(COMPLEX.copy())
    real, imag = z.real, z.imag[1:]
    z *= 2.0
    np.testing.assert_array_equal(real.samples, 2.0 * COMPLEX.real)
    np.testing.assert_array_equal(imag.samples, 2.0 * COMPLEX.imag[1:])
    z.real = Ensemble(np.arange(12.0).reshape(4, 3))
    z.imag = np.arange(4.0)
    np.testing.assert_array_equal(real.samples, np.arange(12.0).reshape(4, 3))
    np.testing.assert_array_equal(z.samples, np.arange(12.0).reshape(4, 3) + 1j * np.arange(4.0)[:, None])
    with pytest.raises(TypeError, match="imaginary part"):
        Ensemble(LINE.copy()).imag = 1.0


def test_parts_that_are_gone_are_forgotten():
    x, k = Ensemble(MATRIX.copy()), Ensemble(np.array([0, 2, 1]))
    for _ in range(1000):
        x[k] + 1.0
    assert len(x._memory_token.copies) < 50
    kept = [x[k] for _ in range(100)]
    x += 1.0
    np.testing.assert_array_equal(kept[99].samples, MATRIX[[0, 2, 1], :, [0, 1, 2]].T + 1.0)
