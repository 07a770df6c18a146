"""NumPy's functions on ensembles: right, or refused with a reason; never sample 0 in silence."""

import math

import array_api_strict
import numpy as np
import pytest

from ensemble.scalar import DivergenceError, Ensemble, SampleSet
from tests.walked import every

A = np.random.default_rng(51151).normal(size=(4, 4)) + 4 * np.eye(4)
CALLS = {
    "sin": lambda x: np.sin(x),
    "add": lambda x: np.add(x, 1.5),
    "plain left": lambda x: np.ones((4, 4)) * x,
    "plain minus": lambda x: np.arange(4.0) - x,
    "plain compare": lambda x: np.zeros(4) < x,
    "plain matmul": lambda x: A @ x,
    "matmul plain": lambda x: x @ A,
    "dot": lambda x: np.dot(A, x),
    "dot 1-d": lambda x: np.dot(A[0], x[0]),
    "dot number": lambda x: np.dot(2.0, x),
    "solve": lambda x: np.linalg.solve(A, x),
    "norm": lambda x: np.linalg.norm(x),
    "norm axis": lambda x: np.linalg.norm(x, axis=-1),
    "norm nuc": lambda x: np.linalg.norm(x, "nuc"),
    "norm 1": lambda x: np.linalg.norm(x, 1, axis=0, keepdims=True),
    "eigvalsh": lambda x: np.linalg.eigvalsh(x + np.matrix_transpose(x)),
    "fft": lambda x: np.fft.fft(x),
    "where": lambda x: np.where(x > 0, x, 0.0),
    "sum": lambda x: np.sum(x),
    "sum axis": lambda x: np.sum(x, -1),
    "mean": lambda x: np.mean(x, axis=0, keepdims=True),
    "std": lambda x: np.std(x, ddof=1),
    "max": lambda x: np.max(x, axis=1),
    "amax": lambda x: np.amax(x),
    "argmax": lambda x: np.argmax(x, axis=0),
    "cumsum": lambda x: np.cumsum(x),
    "cumsum axis": lambda x: np.cumsum(x, axis=1),
    "concatenate": lambda x: np.concatenate([x, A], axis=1),
    "stack": lambda x: np.stack([x, x], axis=-1),
    "transpose": lambda x: np.transpose(x),
    "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "reshape": lambda x: np.reshape(x, (2, -1)),
    "ravel": lambda x: np.ravel(x),
    "clip": lambda x: np.clip(x, -0.5, 0.5),
    "sort": lambda x: np.sort(x, axis=0),
    "squeeze": lambda x: np.squeeze(x[:1]),
    "expand_dims": lambda x: np.expand_dims(x, 0),
    "zeros_like": lambda x: np.zeros_like(x),
    "full_like": lambda x: np.full_like(x, 2.0),
    "tril": lambda x: np.tril(x),
    "trace": lambda x: np.linalg.trace(x),
    "linalg.outer": lambda x: np.linalg.outer(x[0], x[1]),
    "isclose": lambda x: np.isclose(x, x + 1e-12),
    "copy": lambda x: np.copy(x),
    "add.reduce": lambda x: np.add.reduce(x),
    "add.reduce -1": lambda x: np.add.reduce(x, axis=-1),
    "multiply.accumulate": lambda x: np.multiply.accumulate(x, axis=-1),
    "modf": lambda x: np.modf(x)[1],
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 4, 4)),
    "flip": lambda x: np.flip(x, axis=-1),
    "roll": lambda x: np.roll(x, 1, axis=0),
    "take": lambda x: np.take(x, np.array([2, 0]), axis=1),
    "isnan": lambda x: np.isnan(x),
    "power": lambda x: np.power(np.abs(x), np.float32(1.5)),
    "where=": lambda x: np.sqrt(x, where=x > 0, out=0.0 * x),
    "where= plain": lambda x: np.add(x, 1.0, where=np.arange(4) > 1, out=0.0 * x),
    "dtype=": lambda x: np.add(x, 1, dtype=np.float32),
    "out tuple": lambda x: np.modf(x, out=(0.0 * x, 0.0 * x))[0],
    "one out": lambda x: np.modf(x, None, 0.0 * x)[0],
    "list": lambda x: np.add([1.0, 2.0, 3.0, 4.0], x),
    "add.reduce none": lambda x: np.add.reduce(x, axis=None),
    "add.reduce keepdims": lambda x: np.add.reduce(x, axis=(0, 1), keepdims=True),
    "add.reduce where": lambda x: np.add.reduce(x, axis=1, where=x > 0),
    "add.reduce plain where": lambda x: np.add.reduce(x, axis=0, where=np.eye(4, dtype=bool)),
    "add.reduce of plain where": lambda x: np.add.reduce(A, axis=0, where=x > 0),
    "maximum.reduce initial": lambda x: np.maximum.reduce(x, axis=0, initial=0.5, where=x > 0),
    "add.reduce initial none": lambda x: np.add.reduce(x, initial=None),
    "add.reduce dtype": lambda x: np.add.reduce(x, dtype=np.float32),
    "add.reduce out": lambda x: np.add.reduce(x, out=0.0 * x[0]),
    "add.accumulate out": lambda x: np.add.accumulate(x, out=0.0 * x),
    "add.reduceat": lambda x: np.add.reduceat(x, [0, 2], axis=1),
    "outer": lambda x: np.subtract.outer(x[0], x),
    "outer plain": lambda x: np.multiply.outer(np.arange(3.0), x[0]),
    "outer number": lambda x: np.add.outer(2.0, x[0]),
    "matmul out": lambda x: np.matmul(A, x, out=0.0 * x),
    "matmul dtype": lambda x: np.matmul(x, x, dtype=np.float64),
    "matvec": lambda x: np.matvec(x, x[0]),
    "vecmat plain": lambda x: np.vecmat(A[0], x),
    "invert": lambda x: np.invert(x > 0),
    "sum where": lambda x: np.sum(x, where=A > 0),
    "sum where own": lambda x: np.sum(x, axis=0, where=x > 0),
    "max initial": lambda x: np.max(x, initial=100.0),
    "median": lambda x: np.median(x, axis=0),
    "quantile": lambda x: np.quantile(x, [0.1, 0.5]),
    "interp": lambda x: np.interp(x[0], [-1.0, 0.0, 2.0], [3.0, 1.0, 2.0]),
    "einsum": lambda x: np.einsum("ij,jk->ik", x, A),
    "gradient": lambda x: np.gradient(x)[1],
    "hstack": lambda x: np.hstack([x, A]),
    "split": lambda x: np.split(x, 2)[1],
    "block": lambda x: np.block([[x, A], [A, x]]),
    "polyfit": lambda x: np.polyfit(np.arange(4.0), x[0], 1),
    "convolve": lambda x: np.convolve(x[0], x[1]),
    "nan_to_num": lambda x: np.nan_to_num(x),
    "cov": lambda x: np.cov(x),
    "lstsq": lambda x: np.linalg.lstsq(x, x[0], rcond=None)[0],
    "array_equal": lambda x: np.array_equal(x, x) & (x[0, 0] == x[0, 0]),
    "lists beside": lambda x: np.concatenate([[1.0, 2.0], x[0]]),
    "lists of values": lambda x: np.concatenate([[x[0, 0], 2.0], x[0]]),
    "where list": lambda x: np.where(x > 0, [1.0, 2.0, 3.0, 4.0], x),
    "take one": lambda x: np.take(x, 2, axis=1) + np.take(x, [0], axis=1)[:, 0],
    "solve list": lambda x: np.linalg.solve(x, [1.0, 2.0, 3.0, 4.0]),
    "round": lambda x: np.round(x, 2),
    "svd values": lambda x: np.linalg.svd(x, compute_uv=False),
    "has complex type": lambda x: x * (2.0 if np.iscomplexobj(x) or not np.isrealobj(x) else 3.0),
    "times list": lambda x: x * [1.0, 2.0, 3.0, 4.0],
    "list minus": lambda x: [1.0, 2.0, 3.0, 4.0] - x,
    "equals list": lambda x: x == [1.0, 2.0, 3.0, 4.0],
    "matmul tuple": lambda x: x @ (1.0, 2.0, 3.0, 4.0),
    "divmod": lambda x: np.stack(divmod(x, 0.7) + divmod(2.0, x)),
    "sort descending": lambda x: np.sort(x, kind="stable"),
}


@every("name", CALLS)
@every("n_samples", [1, 3])
def test_numpy_functions_work_sample_by_sample(name, n_samples):
    x = Ensemble(np.random.default_rng(93283).normal(size=(4, 4, n_samples)))
    got = CALLS[name](x)
    assert isinstance(got, Ensemble)
    for s in range(n_samples):
        assert got.dtype == np.asarray(CALLS[name](x.sample(s))).dtype
        # 100: sums of 16 terms, and a solve of condition below 10
        np.testing.assert_allclose(got.sample(s), CALLS[name](x.sample(s)), rtol=100 * np.finfo(float).eps, atol=1e-13)


REFUSED = {
    "at of a plain array": (
        lambda x: np.add.at(np.zeros((4, 4)), 0, x[0]),
        r"np.add.at: the array written to must be an Ensemble; got an ndarray",
    ),
    "reduce out": (lambda x: np.add.reduce(x, out=np.zeros(4)), "np.add.reduce: out must be an Ensemble"),
    "reduce initial": (lambda x: np.add.reduce(x, initial=x[0]), "initial= must be a number"),
    "reduce over samples": (lambda x: np.add.reduce(x, axis=2), "axis must be from -2 to 1; got 2"),
    "reduceat": (lambda x: np.add.reduceat(x[0], np.argsort(x[0])), "indices of np.add.reduceat must be the same"),
    "gufunc axes": (lambda x: np.matmul(x, x, axes=[(0, 1), (0, 1), (0, 1)]), "only dtype, casting and out are lifted"),
    "objects": (lambda x: np.frompyfunc(str, 1, 1)(x), "the result has dtype object"),
    "dates": (lambda x: x * np.timedelta64(1, "s"), r"operands must hold numbers or bools; got dtype timedelta64\[s\]"),
    "object numbers": (lambda x: x * np.array([1] * 4, dtype=object), "operands must hold numbers or bools"),
    "a list of ensembles": (lambda x: np.array([x, x]), "np.stack or xp.asarray makes one ensemble of a list"),
    "its sum": (lambda x: np.sum([x, x]), "np.stack or xp.asarray makes one ensemble of a list"),
    "object operand": (lambda x: np.array([None] * 4) * x, "unsupported operand|dtype object"),
    "masked": (lambda x: np.add(x, np.ma.zeros(4)), "operands must be arrays or numbers; got a MaskedArray"),
    "sum out": (lambda x: np.sum(x, out=np.zeros(())), "np.sum: out must be an Ensemble; got an ndarray"),
    "sum out by place": (lambda x: np.sum(x, 0, None, np.zeros(4)), "np.sum: out must be an Ensemble; got an ndarray"),
    "method out by place": (lambda x: x.mean(0, None, np.zeros(4)), "np.mean: out must be an Ensemble; got an ndarray"),
    "median out": (lambda x: np.median(x, 0, np.zeros(4)), "np.median: out must be an Ensemble; got an ndarray"),
    "cumsum out": (lambda x: np.cumsum(x, out=np.zeros(16)), "np.cumsum: out must be an Ensemble; got an ndarray"),
    "copyto": (lambda x: np.copyto(np.zeros((4, 4)), x), "np.copyto.*a plain array cannot hold samples"),
    "put": (lambda x: np.put(np.zeros(4), 0, x[0, 0]), "np.put: a must be an Ensemble; got an ndarray"),
    "r_": (lambda x: np.r_[x[0], x[1]], r"got np.r_ or np.c_. Write np.concatenate\(\[x, y\]\)"),
    "c_": (lambda x: np.c_[x[0], x[1]], r"np.column_stack\(\[x, y\]\) for np.c_"),
    "mgrid": (lambda x: np.mgrid[0 : x[0, 0]], "got np.mgrid or np.ogrid. Write np.linspace"),
    "polynomial": (lambda x: np.polynomial.Polynomial([1, 2])(x), r"Write np.polynomial.polynomial.polyval\(x, p.conv"),
    "save": (lambda x: np.save("/nonexistent", x), "np.save.*it is not in the Array API"),
    "buffer": (lambda x: np.frombuffer(x), "bytes-like"),
    "shapes that differ": (lambda x: np.flatnonzero(x[0] > 0), "shape of np.flatnonzero.* must be the same"),
    "asarray": (lambda x: np.asarray(x), "a conversion to a plain array must name the samples that it takes"),
    "array": (lambda x: np.array(x), "a conversion to a plain array"),
    "assignment": (lambda x: np.zeros((4, 4)).__setitem__(slice(None), x), "a conversion to a plain array"),
    "entry assignment": (
        lambda x: np.zeros(4).__setitem__(0, x[0, 0]),
        "a conversion to a plain array|an array element with a sequence",
    ),
    "plain in place": (lambda x: np.zeros((4, 4)).__iadd__(x), "np.add: out must be an Ensemble; got an ndarray"),
    "out": (lambda x: np.sin(x, out=np.zeros((4, 4))), "np.sin: out must be an Ensemble"),
    "random": (lambda x: np.random.default_rng(1).normal(x), "conversion to a plain array|float"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_lifted_is_refused_with_a_reason(name):
    call, text = REFUSED[name]
    with pytest.raises((TypeError, ValueError, DivergenceError), match=text):
        call(Ensemble(np.random.default_rng(93283).normal(size=(4, 4, 3))))


def test_copyto_writes_into_an_ensemble():
    x, y = Ensemble(np.zeros((2, 3))), Ensemble(np.random.default_rng(93283).normal(size=(2, 3)))
    np.copyto(x, y, where=[True, False])
    np.testing.assert_array_equal(x.samples, [y.samples[0], [0.0] * 3])
    with pytest.raises(TypeError, match=r"Cannot cast array data from dtype\('complex128'\) to dtype\('float64'\)"):
        np.copyto(x, 1j * y)


def test_out_may_be_an_ensemble():
    x, out = Ensemble(np.ones((2, 3))), Ensemble(np.zeros((2, 1)))
    assert np.add(x, 1.0, out=out) is out
    np.testing.assert_array_equal(out.samples, np.full((2, 3), 2.0))


def test_allclose_asks_every_sample():
    x = Ensemble(np.ones((2, 3)))
    assert np.allclose(x, 1.0)


def test_shapes_are_visible_shapes(matrix):
    assert np.shape(matrix) == (3, 4)
    assert np.ndim(matrix) == 2


def test_numpy_scalars_and_functions_meet_other_libraries():
    x = Ensemble(array_api_strict.asarray([1.0, 2.0]))
    assert isinstance(np.float64(2.0) * x, Ensemble)
    with pytest.raises(TypeError, match=r"np\.add"):
        np.add(np.ones(3), x)


class ufunc:
    """What CuPy's ufuncs show of themselves, over NumPy's."""

    def __init__(self, name, nin):
        self.name = self.__name__ = f"cupy_{name}"
        self.nin, self._own = nin, getattr(np, name)

    def __call__(self, *arguments):
        for argument in arguments:
            if hasattr(argument, "__cupy_override_elementwise_kernel__"):
                return argument.__cupy_override_elementwise_kernel__(self, *arguments)
        return self._own(*arguments)


def test_the_protocol_of_cupy_runs_ufuncs_on_the_samples():
    samples = SampleSet(n_samples=3)
    x, plain = Ensemble(np.random.default_rng(93283).normal(size=(4, 3)), samples), np.arange(4.0)
    got = ufunc("add", 2)(plain, x)
    assert got.sample_set is samples
    np.testing.assert_array_equal(got.samples, plain[:, None] + x.samples)
    np.testing.assert_array_equal(ufunc("modf", 1)(x)[1].samples, np.modf(x.samples)[1])
    with pytest.raises(TypeError, match=r"cupy\.add: the array written to must be an Ensemble"):
        ufunc("add", 2)(plain, x, plain)
    with pytest.raises(TypeError, match=r"cupy\.add: .* an operand is neither a number nor an array"):
        ufunc("add", 2)("text", x)
    with pytest.raises(ValueError, match=r"cupy\.add: operands must have one number of samples"):
        ufunc("add", 2)(Ensemble(np.ones((4, 2))), x)


def test_at_writes_each_sample_by_its_own_index():
    x = Ensemble(np.zeros((3, 2)))
    np.add.at(x, Ensemble(np.array([[0, 2], [0, 1]])), 1.0)
    np.testing.assert_array_equal(x.samples, [[2.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    np.add.at(x, [0, 0], Ensemble(np.array([1.0, 10.0])))
    np.testing.assert_array_equal(x.samples[0], [4.0, 20.0])
    y = Ensemble(np.zeros((3, 1)))
    np.subtract.at(y, (np.array([1, 1]),), Ensemble(np.array([[1.0, 2.0], [3.0, 4.0]])))
    np.testing.assert_array_equal(y.samples, [[0.0, 0.0], [-4.0, -6.0], [0.0, 0.0]])


def test_outputs_widen_to_the_samples_of_mask_and_operands():
    mask, out = Ensemble(np.array([True, False, True])), Ensemble(np.zeros(1))
    np.add(1.0, 2.0, out=out, where=mask)
    np.testing.assert_array_equal(out.samples, [3.0, 0.0, 3.0])
    with pytest.raises(ValueError, match="operands must have one number of samples, or be shared; got 2 and 3"):
        np.add(Ensemble(np.ones(2)), 1.0, out=Ensemble(np.ones(3)))


def test_a_foreign_type_is_asked_before_ours_refuses():
    class Other:
        def __array_ufunc__(self, *arguments, **options):
            return "theirs"

    assert np.add(Ensemble(np.ones(2)), Other()) == "theirs"


SILENT_ELSEWHERE = {
    "norm takes all samples": lambda x: (np.linalg.norm(x), lambda v: np.linalg.norm(v)),
    "norm of one sample set apart": lambda x: (np.linalg.norm(x, axis=0), lambda v: np.linalg.norm(v, axis=0)),
    "isfinite is not of the mean": lambda x: (np.isfinite(x), np.isfinite),
    "where does not pick a sample": lambda x: (np.where(x > 0, x, -x), np.abs),
    "matrix times": lambda x: (A @ x, lambda v: A @ v),
    "matrix solve": lambda x: (np.linalg.solve(A, x), lambda v: np.linalg.solve(A, v)),
}


@pytest.mark.parametrize("name", SILENT_ELSEWHERE)
def test_what_goes_wrong_in_silence_elsewhere_is_right_here(name):
    values = np.random.default_rng(64901).normal(size=(4, 3))
    values[2, 1] = np.nan
    got, plain = SILENT_ELSEWHERE[name](Ensemble(values))
    for s in range(3):
        np.testing.assert_allclose(got.sample(s), plain(values[:, s]), rtol=0, atol=1e-13)


ONE_VALUE = {
    "bool": lambda x: bool(x > 0),
    "not": lambda x: not x > 0,
    "and": lambda x: (x > 0) and (x < 5),
    "chained comparison": lambda x: 0 < x < 5,
    "if": lambda x: 1 if x > 0 else 2,
    "max": lambda x: max(x, 0.0),
    "sorted": lambda x: sorted([x, 0.0]),
    "float": lambda x: float(x),
    "sqrt": lambda x: math.sqrt(x * x),
    "int": lambda x: int(x),
    "range": lambda x: range(Ensemble(np.array([1, 2]))),
    "list index": lambda x: [1, 2, 3][Ensemble(np.array([1, 2]))],
    "positive definiteness of CG": lambda x: x.__array_namespace__().real(x) <= 0 or None,
    "in": lambda x: 1.0 in Ensemble(np.array([[1.0, 2.0]])),
    "round": lambda x: int(np.round(x)),
    "allclose": lambda x: np.allclose(x, 1.0),
    "dlpack": lambda x: np.from_dlpack(x),
    "item assignment": lambda x: [0.0].__setitem__(Ensemble(np.array([0, 1])), 1.0),
}


@pytest.mark.parametrize("name", ONE_VALUE)
def test_one_value_of_samples_that_differ_is_refused(name):
    with pytest.raises(DivergenceError, match=r"Ensemble: .* must be .*; got"):
        ONE_VALUE[name](Ensemble(np.array([1.0, -2.0])))


def test_a_plain_array_never_takes_one_sample():
    x = Ensemble(np.array([[1.0, 2.0], [3.0, 4.0]]))
    plain = np.zeros(2)
    for assign in (
        lambda: plain.__setitem__(slice(None), x),
        lambda: plain.__setitem__(0, x[0]),
        lambda: plain.__iadd__(x),
        lambda: plain.fill(x[0]),
        lambda: np.array([x[0], x[1]]),
        lambda: np.full(2, x[0]),
        lambda: np.asarray(x, dtype=float),
        lambda: np.float64(x[0]),
    ):
        with pytest.raises((TypeError, ValueError)):
            assign()
    np.testing.assert_array_equal(plain, 0.0)
