"""Calls of libraries that never heard of ensembles, compared with their calls on each sample.

Run as a script, because SciPy decides when it is imported whether it follows the Array API. Prints a JSON object: for
each call "right", or what went wrong.
"""

import json
import os
import warnings

os.environ["SCIPY_ARRAY_API"] = "1"

import array_api_extra as xpx
import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.signal
import scipy.spatial
import scipy.special
import scipy.stats

from ensemble.scalar import DivergenceError, Ensemble

CALLS = {
    "special.logsumexp": lambda x: scipy.special.logsumexp(x, axis=0),
    "special.softmax": lambda x: scipy.special.softmax(x, axis=-1),
    "special.log_softmax": lambda x: scipy.special.log_softmax(x, axis=-1),
    "stats.zscore": lambda x: scipy.stats.zscore(x, axis=0),
    "stats.gmean": lambda x: scipy.stats.gmean(abs(x), axis=0),
    "stats.hmean": lambda x: scipy.stats.hmean(abs(x), axis=0),
    "stats.moment": lambda x: scipy.stats.moment(x, 3, axis=0),
    "stats.skew": lambda x: scipy.stats.skew(x, axis=0),
    "stats.kurtosis": lambda x: scipy.stats.kurtosis(x, axis=0),
    "stats.sem": lambda x: scipy.stats.sem(x, axis=0),
    "stats.variation": lambda x: scipy.stats.variation(x, axis=0),
    "integrate.trapezoid": lambda x: scipy.integrate.trapezoid(x, axis=0),
    "integrate.cumulative_trapezoid": lambda x: scipy.integrate.cumulative_trapezoid(x, axis=0),
    "signal.hilbert": lambda x: scipy.signal.hilbert(x, axis=0),
    "optimize.rosen": lambda x: scipy.optimize.rosen(x),
    "extra.cov": lambda x: xpx.cov(x),
    "extra.kron": lambda x: xpx.kron(x, x),
    "extra.pad": lambda x: xpx.pad(x, 2),
    "extra.sinc": lambda x: xpx.sinc(x),
    "extra.expand_dims": lambda x: xpx.expand_dims(x, axis=(0, 1)),
    "extra.isclose": lambda x: xpx.isclose(x, x + 1e-12),
    "extra.nunique": lambda x: xpx.nunique(x),
    "extra.at": lambda x: xpx.at(x, 0).set(1.0),
    "extra.create_diagonal": lambda x: xpx.create_diagonal(x),
    "extra.atleast_nd": lambda x: xpx.atleast_nd(x, ndim=3),
    "special.erf": lambda x: scipy.special.erf(x),
    "special.gammaln": lambda x: scipy.special.gammaln(abs(x)),
    "special.betainc": lambda x: scipy.special.betainc(2.0, abs(x), 0.3),
    "stats.pearsonr": lambda x: scipy.stats.pearsonr(x, x**2, axis=0).pvalue,
    "stats.ttest_1samp": lambda x: scipy.stats.ttest_1samp(x, 0.1, axis=0).pvalue,
    "stats.ttest_ind": lambda x: scipy.stats.ttest_ind(x, x**2, axis=0).pvalue,
    "stats.spearmanr": lambda x: scipy.stats.spearmanr(x[:, 0], x[:, 1]).statistic,
    "stats.skewtest": lambda x: scipy.stats.kurtosistest(x, axis=0).statistic,
    "stats.chisquare": lambda x: scipy.stats.chisquare(x + 9.0, axis=0, sum_check=False).pvalue,
    "stats.rankdata": lambda x: scipy.stats.rankdata(x, axis=0),
    "stats.iqr": lambda x: scipy.stats.iqr(x, axis=0),
    "stats.circmean": lambda x: scipy.stats.circmean(x, axis=0),
    "signal.fftconvolve": lambda x: scipy.signal.fftconvolve(x, x, axes=0),
    "spatial.Rotation": lambda x: scipy.spatial.transform.Rotation.from_rotvec(x[0, :3]).as_matrix(),
    # these leave the Array API, and must raise an error that names it
    "signal.lfilter": lambda x: scipy.signal.lfilter([1.0, 0.5], [1.0, 0.2], x, axis=0),
    "signal.detrend": lambda x: scipy.signal.detrend(x, axis=0),
    "extra.apply_where": lambda x: xpx.apply_where(x > 0, x, lambda v: 2 * v, lambda v: -v),
}


def verdict(call, x) -> str:
    """ "right", "refused", or "wrong"."""
    try:
        got = call(x)
    except (TypeError, ValueError, DivergenceError):
        return "refused"
    got = got if isinstance(got, Ensemble) else Ensemble(np.asarray(got)[..., None])
    same = all(np.allclose(got.sample(s), call(x.sample(s)), rtol=1e-12, atol=1e-12) for s in range(x.n_samples))
    return "right" if same else "wrong"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    drawn = Ensemble(np.random.default_rng(73939).normal(size=(6, 5, 3)))
    print(json.dumps({name: verdict(call, drawn) for name, call in CALLS.items()}))
