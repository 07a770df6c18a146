"""Statistics of solutions without histories, beside those of histories and closed forms."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from ensemble import Ensemble, SampleSet, ode, sample_mean, sample_quantile, sample_var
from ensemble.ode import compiled, device, over_samples, statistics
from tests.ode.problems import SOLVERS, lorenz

W = np.linspace(0.5, 3.0, 19)
RHO = np.linspace(0.0, 21.0, 37)
NAMES = ("mean", "variance", "minimum", "maximum", "integral")


def oscillator(t, y, p, xp):
    return [y[1], -p[0] * p[0] * y[0]]


def powers(t, y, p, xp):
    return [y[0], y[0] * y[0], t * 1.0]


def exact(end):
    """Mean and variance of cos(w t) over (0, end), and the mean of its square."""
    mean = np.sin(W * end) / (W * end)
    square = 0.5 + np.sin(2.0 * W * end) / (4.0 * W * end)
    return mean, square - mean**2, square


@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("end", [5.0, -5.0])
def test_statistics_over_time_are_the_exact_ones(method, end):
    options = {"rtol": 1e-10, "atol": 1e-12, "max_step": 0.1} if method != "rk4" else SOLVERS[method]
    made = ode.time_statistics(oscillator, [1.0, 0.0], (0.0, end), p=[Ensemble(W)], of=powers, method=method, **options)
    mean, variance, square = exact(5.0)
    assert np.allclose(made.mean.samples, [mean, square, np.full(W.size, end / 2.0)], rtol=0, atol=2e-7)
    assert np.allclose(made.integral.samples, end * made.mean.samples, rtol=1e-14)
    assert np.allclose(made.variance.samples[0], variance, rtol=0, atol=2e-7)
    assert np.allclose(made.variance.samples[2], 25.0 / 12.0, rtol=1e-9)
    reached = np.pi < 5.0 * W
    assert np.allclose(made.minimum.samples[0, reached], -1.0, rtol=0, atol=2e-7)
    assert np.allclose(made.maximum.samples[0], 1.0, rtol=0, atol=2e-7)


@pytest.mark.parametrize("method", ["tsit5", "dop853", "taylor", "rodas4"])
@pytest.mark.parametrize("rtol", [1e-4, 1e-7, 1e-10])
def test_extremes_and_means_are_as_good_as_the_tolerance(method, rtol):
    """Of sin and sin**3 + t / 4 over half a period, with long steps."""

    def of(t, y, p, xp):
        return [y[0], y[0] ** 3 + 0.25 * t]

    made = ode.time_statistics(lambda t, y, p, xp: [y[1], -y[0]], [0.0, 1.0], (0.0, np.pi), of=of, method=method,
                               rtol=rtol, atol=1e-3 * rtol)  # fmt: skip
    most = -minimize_scalar(lambda t: -(np.sin(t) ** 3 + 0.25 * t), bounds=(1.0, 2.5), options={"xatol": 1e-9}).fun
    bound = 300.0 * rtol
    assert np.allclose(made.maximum.samples[:, 0], [1.0, most], rtol=0, atol=bound)
    assert np.allclose(made.mean.samples[:, 0], [2.0 / np.pi, 4.0 / 3.0 / np.pi + np.pi / 8.0], rtol=0, atol=bound)
    assert made.variance.samples[0, 0] == pytest.approx(0.5 - 4.0 / np.pi**2, abs=bound)


def test_statistics_go_through_stops():
    """A saw whose teeth are added at stops: y = t, back to zero at 1, 2, ..., each sample with stops of its own."""
    stops = Ensemble(np.array([[1.0, 0.5], [2.0, 1.0], [3.0, np.inf]]))
    drop = Ensemble(np.array([[[-1.0, -0.5]], [[-1.0, -0.5]], [[-1.0, 0.0]]]))
    made = ode.time_statistics(lambda t, y, p, xp: [1.0], [0.0], (0.0, 4.0), stops=stops, at_stops=drop)
    assert np.allclose(made.maximum.samples[0], [1.0, 3.0], rtol=1e-9)
    assert np.allclose(made.mean.samples[0], [0.5, (0.125 + 0.125 + 4.5) / 4.0], rtol=1e-9)
    assert np.allclose(made.variance.samples[0, 0], 1.0 / 12.0, rtol=1e-9)


def test_states_keep_their_bits_and_samples_those_of_their_own_runs():
    rho = RHO.copy()
    rho[5] = np.nan
    options = {"rtol": 1e-8, "atol": 1e-10}
    for more in ({}, {"t_eval": np.linspace(0.0, 1.0, 33)}):
        with pytest.warns(ode.OdeWarning, match="sample 5"):
            made = ode.time_statistics(lorenz, np.ones(3), (0.0, 1.0), p=[Ensemble(rho)], **options, **more)
        with pytest.warns(ode.OdeWarning, match="sample 5"):
            plain = ode.solve(lorenz, np.ones(3), (0.0, 1.0), p=[Ensemble(rho)], t_eval=[1.0], **options)
        assert np.array_equal(made.result.y.samples, plain.y.samples[0], equal_nan=True)
        alone = ode.time_statistics(lorenz, np.ones(3), (0.0, 1.0), p=[rho[9]], **options, **more)
        for name in NAMES:
            samples = getattr(made, name).samples
            assert np.isnan(samples[:, 5]).all() and np.isfinite(np.delete(samples, 5, 1)).all()
            assert np.array_equal(samples[:, 9], getattr(alone, name).samples[:, 0])


def test_a_steady_state_has_its_value_and_no_variance():
    """Of every interpolant, whatever the last digits of its quadrature's weights are."""
    for method in ("rk4", "tsit5", "dop853"):
        made = ode.time_statistics(lambda t, y, p, xp: [0.0 * y[0]], [3.1], (0.0, 7.0), method=method, step=0.3)
        assert [getattr(made, name).samples[0, 0] for name in NAMES] == [3.1, 0.0, 3.1, 3.1, 3.1 * 7.0], method
    none = ode.time_statistics(lambda t, y, p, xp: [0.0 * y[0]], [3.0], (2.0, 2.0))
    assert np.isnan(none.mean.samples).all()


def test_a_small_variance_on_a_large_mean_is_kept():
    """Of 1e6 + 1e-2 cos t: differences of squares would leave no digit of it."""
    made = ode.time_statistics(oscillator, [1e-2, 0.0], (0.0, 2.0 * np.pi), p=[1.0], rtol=1e-10, atol=1e-14,
                               max_step=0.1, of=lambda t, y, p, xp: 1e6 + y[0])  # fmt: skip
    assert made.variance.samples[0, 0] == pytest.approx(5e-5, rel=1e-4)


def test_statistics_at_given_times_are_those_of_the_history(monkeypatch):
    times = np.concatenate([[0.0], np.sort(np.random.default_rng(1).random(30)), [1.0]])
    monkeypatch.setitem(statistics.GROUP, "numpy", 10 * 3 * times.size)  # ten samples at a time
    options = {"p": [Ensemble(RHO)], "t_eval": times}
    made = ode.time_statistics(lorenz, np.ones(3), (0.0, 1.0), **options)
    y = ode.solve(lorenz, np.ones(3), (0.0, 1.0), **options).y.samples
    steps = np.diff(times)[:, None, None]
    mean = (steps * 0.5 * (y[1:] + y[:-1])).sum(0)
    deviation = y - mean
    square = (steps * 0.5 * (deviation[1:] ** 2 + deviation[:-1] ** 2)).sum(0)
    assert np.allclose(made.mean.samples, mean, rtol=1e-12) and np.allclose(made.variance.samples, square, rtol=1e-11)
    assert np.array_equal(made.minimum.samples, y.min(0)) and np.array_equal(made.maximum.samples, y.max(0))
    assert np.allclose(made.integral.samples, mean, rtol=1e-12)


@pytest.mark.parametrize("times", [None, np.linspace(0.0, 1.0, 11)], ids=["end", "times"])
def test_statistics_over_samples_are_those_of_the_history(times, monkeypatch):
    monkeypatch.setitem(statistics.GROUP, "numpy", 100 * 3)
    options = {"p": [Ensemble(np.linspace(0.0, 21.0, 501))], "t_eval": times}

    def product(t, y, p, xp):
        return [y[0] * y[1] + t, p[0] * 1.0]

    made = ode.sample_statistics(lorenz, np.ones(3), (0.0, 1.0), of=product, **options)
    y = ode.solve(lorenz, np.ones(3), (0.0, 1.0), **options).y.samples
    t = np.array(1.0) if times is None else times[:, None]
    values = np.stack(np.broadcast_arrays(y[..., 0, :] * y[..., 1, :] + t, options["p"][0].samples), axis=-2)
    assert np.allclose(made.mean, values.mean(-1), rtol=1e-12)
    assert np.allclose(made.variance, values.var(-1, ddof=1), rtol=1e-10, atol=1e-14)
    assert np.array_equal(made.minimum, values.min(-1)) and np.array_equal(made.maximum, values.max(-1))
    assert (made.n_samples == 501).all() and np.shape(made.n_samples) == np.shape(values)[:-2]


def test_weights_of_the_sample_set_are_those_of_sample_mean(monkeypatch):
    monkeypatch.setitem(statistics.GROUP, "numpy", 3)
    weights = np.array([2.0, 0.5, 0.0, 1.0, 3.0])
    points = Ensemble(np.array([0.5, 0.9, 9.0, 1.1, 1.5]), SampleSet(weights=weights))
    options = {"p": [points], "t_eval": [0.5, 1.0]}

    def decay(t, y, p, xp):
        return [-p[0] * y[0]]

    made = ode.sample_statistics(decay, [1.0], (0.0, 1.0), **options)
    y = ode.solve(decay, [1.0], (0.0, 1.0), **options).y
    assert np.allclose(made.mean, sample_mean(y), rtol=1e-14)
    assert np.allclose(made.variance, sample_var(y, ddof=1), rtol=1e-12)
    assert np.array_equal(made.minimum, y.samples[..., 4]) and made.n_samples.tolist() == [4, 4]


LEVELS = [0.0, 0.05, 0.5, 0.95, 1.0]


@pytest.mark.parametrize("times", [None, np.linspace(0.0, 1.0, 11)], ids=["end", "times"])
@pytest.mark.parametrize("group", [7, 100, 501])
def test_quantiles_over_samples_are_those_of_the_history_whatever_the_groups(times, group, monkeypatch):
    options = {"p": [Ensemble(np.linspace(0.0, 21.0, 501))], "t_eval": times}
    y = ode.solve(lorenz, np.ones(3), (0.0, 1.0), **options).y
    monkeypatch.setitem(statistics.GROUP, "numpy", group * 3 * (1 if times is None else 11))
    made = ode.sample_statistics(lorenz, np.ones(3), (0.0, 1.0), quantiles=LEVELS, **options)
    assert np.array_equal(made.quantiles, sample_quantile(y, LEVELS))
    assert np.array_equal(made.quantiles[0], made.minimum) and np.array_equal(made.quantiles[-1], made.maximum)
    alone = ode.sample_statistics(lorenz, np.ones(3), (0.0, 1.0), quantiles=0.5, **options)
    assert np.array_equal(alone.quantiles, made.quantiles[2])
    assert ode.sample_statistics(lorenz, np.ones(3), (0.0, 1.0), **options).quantiles is None


@pytest.mark.parametrize("start", [1.0, Ensemble(np.linspace(0.1, 1.4, 301)[None])], ids=["all", "some fail"])
@pytest.mark.filterwarnings("ignore::ensemble.ode.OdeWarning")
def test_quantiles_of_many_values_keep_their_bound_and_have_the_bits_of_any_groups(start, monkeypatch):
    def growth(t, y, p, xp):
        return [p[0] * y[0] * y[0] if isinstance(start, Ensemble) else -p[0] * y[0], 1.0 + 0.0 * y[0]]

    def of(t, y, p, xp):
        return [y[0], 1e-9 * y[0] - 5.0, p[0] * 1.0, y[1] * 0.0]

    y0 = [start.samples[0] if isinstance(start, Ensemble) else start * np.ones(301), np.zeros(301)]
    times = np.linspace(0.0, 1.0, 9)
    options = {"p": [Ensemble(np.linspace(0.5, 1.0, 301))], "t_eval": times, "of": of, "quantiles": LEVELS}
    exact = ode.sample_statistics(growth, Ensemble(np.array(y0)), (0.0, 1.0), **options)
    monkeypatch.setattr(over_samples, "MOST_KEPT", 0)
    found = []
    for group in (5, 64, 301):
        monkeypatch.setitem(statistics.GROUP, "numpy", group * 2 * times.size)
        found.append(ode.sample_statistics(growth, Ensemble(np.array(y0)), (0.0, 1.0), **options).quantiles)
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    assert found[0].shape == exact.quantiles.shape == (5, 9, 4)
    width = 2.0 * (exact.maximum - exact.minimum) / 1023.0
    rounding = np.spacing(np.abs(exact.maximum))
    gap = width + (exact.maximum - exact.minimum) / 50.0  # to the next sample: quantiles interpolate, bins do not
    assert np.all(np.abs(found[0] - exact.quantiles) <= np.maximum(gap, rounding))
    assert np.array_equal(found[0][[0, -1]], exact.quantiles[[0, -1]])
    assert (exact.n_samples[-1] < 301) == isinstance(start, Ensemble)


def test_quantiles_of_what_is_not_there_or_not_finite_are_nan(monkeypatch):
    def of(t, y, p, xp):
        return [y[0], xp.log(p[0])]

    options = {"p": [Ensemble(np.array([1.0, -1.0, np.nan]))], "of": of, "quantiles": [0.5], "t_eval": [0.0, 1.0]}
    for most in (over_samples.MOST_KEPT, 0):
        monkeypatch.setattr(over_samples, "MOST_KEPT", most)
        with pytest.warns(ode.OdeWarning, match="sample 2"):
            made = ode.sample_statistics(lambda t, y, p, xp: [p[0] * y[0]], [1.0], (0.0, 1.0), **options)
        assert made.n_samples.tolist() == [3, 2]
        assert np.isfinite(made.quantiles[0, :, 0]).all() and np.isnan(made.quantiles[0, :, 1]).all()
        nothing = options | {"p": [Ensemble(np.full(2, np.nan))], "t_eval": [1.0]}
        with pytest.warns(ode.OdeWarning):
            made = ode.sample_statistics(lambda t, y, p, xp: [p[0] * y[0]], [1.0], (0.0, 1.0), **nothing)
        assert np.isnan(made.quantiles).all()


def test_quantiles_honour_weights_as_sample_quantile_does(monkeypatch):
    points = Ensemble(np.array([0.5, 0.9, 9.0, 1.1, 1.5]), SampleSet(weights=[2.0, 0.5, 0.0, 1.0, 3.0]))
    options = {"p": [points], "t_eval": [0.5, 1.0], "quantiles": [0.25, 0.5]}
    decay = lambda t, y, p, xp: [-p[0] * y[0]]
    monkeypatch.setitem(statistics.GROUP, "numpy", 3)
    made = ode.sample_statistics(decay, [1.0], (0.0, 1.0), **options)
    y = ode.solve(decay, [1.0], (0.0, 1.0), p=[points], t_eval=[0.5, 1.0]).y
    np.testing.assert_allclose(made.quantiles, sample_quantile(y, [0.25, 0.5]), rtol=1e-14)
    monkeypatch.setattr(over_samples, "MOST_KEPT", 0)
    with pytest.raises(ValueError, match="quantiles must be left out for weights and more than 0 values; got samples"):
        ode.sample_statistics(decay, [1.0], (0.0, 1.0), **options)


@pytest.mark.parametrize("wrong, error, seen", [
    (95, ValueError, "quantiles must be in .0, 1.; got 95. Divide percentages by 100"),
    ([0.5, np.nan], ValueError, "quantiles must be in"), ("median", TypeError, "quantiles must hold numbers"),
])  # fmt: skip
def test_wrong_levels_are_refused(wrong, error, seen):
    with pytest.raises(error, match=f"ode.sample_statistics: {seen}"):
        ode.sample_statistics(lambda t, y, p, xp: [-y[0]], [1.0], (0.0, 1.0), quantiles=wrong)


def test_samples_that_fail_are_not_counted_from_where_they_do():
    start = Ensemble(np.array([[0.1, 0.5, 2.0]]))  # the last one grows without bound at t = 0.5
    with pytest.warns(ode.OdeWarning, match="sample 2"):
        made = ode.sample_statistics(lambda t, y, p, xp: [y[0] * y[0]], start, (0.0, 1.0), t_eval=[0.25, 0.75])
    assert made.n_samples.tolist() == [3, 2] and np.isfinite(made.mean).all()
    assert made.result.status.tolist() == [1, 1, 2]


def test_groups_and_untraceable_systems():
    def untraceable(t, y, p, xp):
        return [-y[0] if bool(xp.all(y[0] > -1e9)) else y[0]]

    start = Ensemble(np.linspace(1.0, 2.0, 7)[None])
    made = ode.sample_statistics(untraceable, start, (0.0, 1.0))
    assert made.mean[0] == pytest.approx(1.5 * np.exp(-1.0), rel=1e-6)
    with pytest.raises(TypeError, match=r"ode\.time_statistics: f must be traceable.*With t_eval"):
        ode.time_statistics(untraceable, start, (0.0, 1.0))
    assert ode.time_statistics(untraceable, start, (0.0, 1.0), t_eval=[0.0, 1.0]).mean.n_samples == 7


def test_noise_belongs_to_the_sample_whatever_the_group(monkeypatch):
    def volatility(t, y, p, xp):
        return [0.2 * y[0]]

    options = {"method": "milstein", "step": 0.01, "noise": volatility, "seed": 3}
    args = (lambda t, y, p, xp: [0.5 * y[0]], Ensemble(np.ones((1, 40))), (0.0, 1.0))
    whole = ode.solve(*args, **options)
    monkeypatch.setitem(statistics.GROUP, "numpy", 7)
    made = ode.sample_statistics(*args, of=lambda t, y, p, xp: y[0], **options)
    assert np.array_equal(made.result.y.samples, whole.y.samples)
    steps = ode.time_statistics(*args, of=lambda t, y, p, xp: y[0], **options)
    assert np.array_equal(steps.result.y.samples, whole.y.samples)
    assert (steps.minimum.samples <= whole.y.samples).all() and (steps.variance.samples > 0.0).all()


@pytest.mark.parametrize("method", ["rk4", "dop853"])
def test_the_kernel_gives_the_bits_of_the_cpu(method, emulated, monkeypatch):
    options = {"p": [Ensemble(RHO)], "method": method, **SOLVERS[method]}
    expected = ode.time_statistics(lorenz, np.ones(3), (0.0, 1.0), **options)
    monkeypatch.setattr(compiled, "run", device.run)
    made = ode.time_statistics(lorenz, np.ones(3), (0.0, 1.0), **options)
    for name in NAMES:
        assert np.array_equal(getattr(made, name).samples, getattr(expected, name).samples)


@pytest.mark.cuda
@pytest.mark.parametrize("method", SOLVERS)
def test_a_device_gives_the_statistics_of_the_cpu(method, monkeypatch):
    cupy = pytest.importorskip("cupy")
    for more in ({}, {"t_eval": np.linspace(0.0, 1.0, 9)}):
        options = {"method": method, **SOLVERS[method], **more}
        rho = [Ensemble(RHO)], [Ensemble(cupy.asarray(RHO))]
        expected, made = (ode.time_statistics(lorenz, np.ones(3), (0.0, 1.0), p=p, **options) for p in rho)
        for name in NAMES:
            assert np.array_equal(getattr(made, name).samples.get(), getattr(expected, name).samples)
        options["quantiles"] = LEVELS
        expected, made = (ode.sample_statistics(lorenz, np.ones(3), (0.0, 1.0), p=p, **options) for p in rho)
        for name in ("mean", "variance", "minimum", "maximum", "n_samples", "quantiles"):
            assert np.allclose(getattr(made, name).get(), getattr(expected, name), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("more", [{}, {"t_eval": np.linspace(0.0, 1.0, 5)}])
def test_a_sample_of_which_a_functional_is_not_finite_fails(more):
    start = Ensemble(np.array([[1.0, -1.0, 2.0]]))
    options = {"of": lambda t, y, p, xp: [xp.log(y[0]), y[0]], **more}
    with pytest.warns(ode.OdeWarning, match="2 of 3 samples finished.*non finite: sample 1"):
        made = ode.time_statistics(lambda t, y, p, xp: [-y[0]], start, (0.0, 1.0), **options)
    for name in NAMES:
        assert np.isnan(getattr(made, name).samples).all(axis=0).tolist() == [False, True, False]


@pytest.mark.parametrize("more", [{}, {"t_eval": [1.0, 1.0]}])
def test_there_is_no_mean_over_no_time(more):
    end = Ensemble(np.array([1.0, 1.0]))
    made = ode.time_statistics(lambda t, y, p, xp: [-y[0]], [1.0], (1.0, end), **more)
    assert made.result.succeeded.all()
    for name in NAMES:
        assert np.isnan(getattr(made, name).samples).all()


def test_wrong_arguments_are_clear_errors():
    for function in (ode.time_statistics, ode.sample_statistics):
        with pytest.raises(ValueError, match=r"statistics: events must be left out"):
            function(lorenz, np.ones(3), (0.0, 1.0), p=[20.0], events=lambda t, y, p, xp: y[0])
        with pytest.raises(ValueError, match=r"statistics: of must be callable"):
            function(lorenz, np.ones(3), (0.0, 1.0), p=[20.0], of=3)
        with pytest.raises(TypeError, match=r"statistics: of must be traceable"):
            function(lorenz, np.ones(3), (0.0, 1.0), p=[20.0], of=lambda t, y, p, xp: 1.0 if y[0] > 0 else 2.0)
    with pytest.raises(ValueError, match="t_eval must have two times or more"):
        ode.time_statistics(lorenz, np.ones(3), (0.0, 1.0), p=[20.0], t_eval=[1.0])


def test_the_text_of_statistics_is_one_line_without_arrays():
    p, f = Ensemble(np.array([[0.5, 1.0, np.nan]])), lambda t, y, p, xp: [-p[0] * y[0]]
    with pytest.warns(ode.OdeWarning):
        over_samples = ode.sample_statistics(f, [1.0], (0.0, 1.0), p=p, t_eval=np.linspace(0.0, 1.0, 50))
    assert repr(over_samples).startswith("OdeSampleStatistics(1 value of 2 to 3 samples at 50 times; OdeResult(")
    assert len(repr(over_samples)) < 250
    ends = ode.sample_statistics(f, [1.0], (0.0, 1.0), p=[1.0])
    assert repr(ends).startswith("OdeSampleStatistics(1 value of 1 sample at the ends; OdeResult(")
    over_time = ode.time_statistics(f, [1.0], (0.0, 1.0), p=[Ensemble(np.array([0.5, 1.0]))])
    assert repr(over_time).startswith("OdeTimeStatistics(1 value of 2 samples; OdeResult(")
