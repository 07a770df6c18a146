"""Random models, and the truth by plain Gaussian conditioning of all states on all observations at once."""

import numpy as np
import pytest

from ensemble.apps.kalman import LinearGaussianModel, NonlinearGaussianModel, simulate

SIZES = [(1, 1), (2, 3), (4, 2), (8, 3)]

LENGTHS = [1, 2, 3, 7, 1000, 4097]


def random_parts(T, nx, ny, seed=60913, batch=(), dtype=np.float64):
    """The random model of Särkkä and García-Fernández, all of it time-varying, and observations simulated from it."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.standard_normal((*batch, *shape))

    X, W, X0 = normal(T, nx, nx), normal(T, ny, ny), normal(nx, nx)
    parts = {
        "F": 0.99 * np.linalg.qr(normal(T, nx, nx))[0],
        "Q": X @ X.mT,
        "H": normal(T, ny, nx),
        "R": W @ W.mT + 0.05 * np.eye(ny),
        "m0": normal(nx),
        "P0": X0 @ X0.mT,
        "u": normal(T, nx),
        "d": normal(T, ny),
    }
    x = parts["m0"] + (X0 @ normal(nx, 1))[..., 0]
    y = np.empty((*batch, T, ny))
    for k in range(T):
        x = (parts["F"][..., k, :, :] @ x[..., None])[..., 0] + parts["u"][..., k, :]
        x = x + (X[..., k, :, :] @ normal(nx, 1))[..., 0]
        y[..., k, :] = (parts["H"][..., k, :, :] @ x[..., None])[..., 0] + parts["d"][..., k, :]
        y[..., k, :] += (W[..., k, :, :] @ normal(ny, 1))[..., 0]
    return {name: a.astype(dtype) for name, a in parts.items()}, y.astype(dtype)


def with_gaps(y, seed=7193):
    """`y` with a third of its entries missing, and every fifth observation altogether."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(y.shape) < 0.3, np.nan, y)
    y[..., 4::5, :] = np.nan
    return y


def arguments_of(B, T, nx, ny, dtype=np.float64):
    """Parts of a random model with gaps, its observations, and the arguments of kernels but for `predict_first`."""
    parts, y = random_parts(T, nx, ny, batch=(B,), dtype=dtype)
    y = with_gaps(y).astype(dtype)
    arrays = [parts[name] for name in ("F", "Q", "H", "R", "u", "d")]
    return parts, y, (*arrays, y, parts["m0"], parts["P0"])


def conditioned(parts, y, last=None, prior_at="before"):
    """Means (T, nx), covariances (T, nx, nx) of all states given ``y[: last + 1]``, and log p(y[: last + 1])."""
    F, Q, H, R, m0, P0, u, d = (parts[n] for n in ("F", "Q", "H", "R", "m0", "P0", "u", "d"))
    T, nx, ny = y.shape[0], m0.size, y.shape[1]
    mean, cov = np.zeros((T, nx)), np.zeros((T, nx, T, nx))
    for k in range(T):
        if k == 0 and prior_at == "first_observation":
            mean[0], cov[0, :, 0, :] = m0, P0
            continue
        before, P = (m0, P0) if k == 0 else (mean[k - 1], cov[k - 1, :, k - 1, :])
        mean[k] = F[k] @ before + u[k]
        cov[k, :, k, :] = F[k] @ P @ F[k].T + Q[k]
        for j in range(k):
            cov[k, :, j, :] = F[k] @ cov[k - 1, :, j, :]
            cov[j, :, k, :] = cov[k, :, j, :].T
    last = T - 1 if last is None else last
    G = np.zeros((T, ny, T, nx))
    for k in range(T):
        G[k, :, k, :] = H[k]
    seen = ~np.isnan(y)
    seen[last + 1 :] = False
    seen = seen.reshape(-1)
    G = G.reshape(T * ny, T * nx)[seen]
    noise = np.zeros((T, ny, T, ny))
    for k in range(T):
        noise[k, :, k, :] = R[k]
    big = cov.reshape(T * nx, T * nx)
    S = G @ big @ G.T + noise.reshape(T * ny, T * ny)[np.ix_(seen, seen)]
    r = (y - d).reshape(-1)[seen] - G @ mean.reshape(-1)
    K = np.linalg.solve(S, G @ big).T if seen.any() else np.zeros((T * nx, 0))
    posterior = (big - K @ G @ big).reshape(T, nx, T, nx)
    log_density = -0.5 * (r @ np.linalg.solve(S, r) + np.linalg.slogdet(2 * np.pi * S)[1]) if seen.any() else 0.0
    return (mean.reshape(-1) + K @ r).reshape(T, nx), np.stack([posterior[k, :, k, :] for k in range(T)]), log_density


def close(got, expected, tolerance=1e-9):
    """Equal to `tolerance`, relative to the larger of 1 and the largest entry."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * max(1.0, float(np.max(np.abs(expected)))))


RESULTS = ("filtered mean", "filtered covariance", "log-likelihoods", "log-likelihood", "mean", "covariance")


def close_results(got, smooth, tolerance=1e-9, of_sum=None):
    """Four results of a filter, and two of a smoother where there are more, are those of `rts_smoother`.

    What is wrong is named with its first wrong place (series, step, entry): a step at which a chunk begins says that
    the elements of chunks are wrong, not the step.
    """
    filtered = smooth.filtered
    first = (filtered.mean, filtered.covariance, smooth.log_likelihoods, smooth.log_likelihood)
    wrong = []
    for name, value, expected in zip(RESULTS, got, (*first, smooth.mean, smooth.covariance), strict=False):
        value, expected = np.asarray(value), np.asarray(expected)
        assert value.shape == expected.shape, name
        allowed = of_sum if of_sum and name == "log-likelihood" else tolerance
        largest = max(1.0, float(np.max(np.abs(expected))))
        far = ~np.isclose(value, expected, rtol=0, atol=allowed * largest, equal_nan=True)
        if far.any():
            place = tuple(np.argwhere(far)[0].tolist())
            wrong.append(f"{name} from {place} on: {value[place]:.6g} for {expected[place]:.6g}")
    assert not wrong, "; ".join(wrong)


def sequentially(parts, y):
    """Filter and smoother in float64, step after step with plain NumPy: Kalman forwards, Bryson and Frazier back.

    The prior stands before the first observation; NaN is missing. Filtered means and covariances, smoothed ones, and
    the log-likelihood of every step.
    """
    F, Q, H, R, u, d = (np.asarray(parts[n], np.float64) for n in ("F", "Q", "H", "R", "u", "d"))
    m, P = parts["m0"].astype(np.float64), parts["P0"].astype(np.float64)
    T, nx = y.shape[0], m.size
    means, covs, terms = np.empty((T, nx)), np.empty((T, nx, nx)), np.zeros(T)
    kept = []
    for k in range(T):
        m, P = F[k] @ m + u[k], F[k] @ P @ F[k].T + Q[k]
        seen = ~np.isnan(y[k])
        G, r = H[k][seen], y[k][seen] - H[k][seen] @ m - d[k][seen]
        S = G @ P @ G.T + R[k][np.ix_(seen, seen)]
        solved = np.linalg.solve(S, np.column_stack([G, r]))  # S^-1 G, S^-1 r
        kept.append((m, P, G.T @ solved[:, -1], G.T @ solved[:, :-1]))
        K = P @ solved[:, :-1].T
        m, P = m + K @ r, P - K @ S @ K.T
        P = (P + P.T) / 2
        if seen.any():
            terms[k] = -0.5 * (r @ solved[:, -1] + np.linalg.slogdet(2 * np.pi * S)[1])
        means[k], covs[k] = m, P
    smooth, spread = np.empty_like(means), np.empty_like(covs)
    pull, weight = np.zeros(nx), np.zeros((nx, nx))  # what later observations say, at the predicted state
    for k in range(T - 1, -1, -1):
        m, P, own, gain = kept[k]
        L = F[k + 1] @ (np.eye(nx) - P @ gain) if k < T - 1 else np.zeros((nx, nx))
        pull, weight = own + L.T @ pull, gain + L.T @ weight @ L
        smooth[k], spread[k] = m + P @ pull, P - P @ weight @ P
    return means, covs, smooth, spread, terms


def exactly(parts, y, digits=50, prior_at="before"):
    """Smoothed means and covariances in arithmetic of many digits, by de Jong's recursion."""
    mp = pytest.importorskip("mpmath")
    with mp.workdps(digits):
        matrix = lambda a: mp.matrix(np.asarray(a, float).tolist())
        column = lambda a: mp.matrix(np.asarray(a, float)[:, None].tolist())
        T, nx = y.shape[0], np.shape(parts["m0"])[-1]
        at = lambda name, k: parts[name][k] if np.ndim(parts[name]) == (1 if name in "ud" else 2) + 1 else parts[name]
        m, P, kept = column(parts["m0"]), matrix(parts["P0"]), []
        for k in range(T):
            F = matrix(at("F", k))
            if k or prior_at == "before":
                m, P = F * m + column(at("u", k)), F * P * F.T + matrix(at("Q", k))
            seen = np.flatnonzero(~np.isnan(y[k]))
            own, gain, closed = mp.zeros(nx, 1), mp.zeros(nx, nx), mp.eye(nx)
            kept.append([F, m, P, own, gain, closed])
            if seen.size:
                H, R = matrix(np.asarray(at("H", k))[seen]), matrix(np.asarray(at("R", k))[np.ix_(seen, seen)])
                r = column(y[k][seen] - np.asarray(at("d", k))[seen]) - H * m
                S_inverse = (H * P * H.T + R) ** -1
                K = P * H.T * S_inverse
                kept[-1][3:] = H.T * S_inverse * r, H.T * S_inverse * H, closed - K * H
                m, P = m + K * r, P - K * H * P
        pull, weight = mp.zeros(nx, 1), mp.zeros(nx, nx)
        means, covariances = np.empty((T, nx)), np.empty((T, nx, nx))
        for k in range(T - 1, -1, -1):
            F, m, P, own, gain, closed = kept[k]
            pull, weight = own + closed.T * pull, gain + closed.T * weight * closed
            means[k] = np.array((m + P * pull).tolist(), float)[:, 0]
            covariances[k] = np.array((P - P * weight * P).tolist(), float)
            pull, weight = F.T * pull, F.T * weight * F
        return means, covariances


def exact_observations(T=9, batch=(3,)):
    """Series 1 is seen without noise and moves without noise in what is seen: H Q H' + R = 0 there."""
    parts, y = random_parts(T, 3, 1, batch=batch)
    parts["H"] = np.zeros_like(parts["H"]) + np.array([1.0, 0.0, 0.0])
    parts["Q"][1, :, 0, :] = parts["Q"][1, :, :, 0] = parts["R"][1] = 0.0
    return parts, y


def turned(parts, y, seed=2203):
    """The same series in other coordinates of the state, where what was zero is rounding."""
    U = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))[0]
    both = lambda A: U @ ((A + A.mT) / 2) @ U.T
    even = lambda A: (both(A) + both(A).mT) / 2
    return {**parts, "F": U @ parts["F"] @ U.T, "Q": even(parts["Q"]), "P0": even(parts["P0"]),
            "H": parts["H"] @ U.T, "u": parts["u"] @ U.T, "m0": parts["m0"] @ U.T}, y  # fmt: skip


def correlated(parts, seed=80317):
    """`parts` with noises that correlate: S[k] explains a part of Q[k+1] by R[k]."""
    rng, T = np.random.default_rng(seed), len(parts["F"])
    C = rng.standard_normal((T, parts["F"].shape[-1], parts["H"].shape[-2]))
    S = C @ parts["R"]
    Q = parts["Q"].copy()
    Q[1:] += (S @ C.mT)[:-1]
    return {**parts, "Q": Q, "S": S}


def constant_parts():
    parts, y = random_parts(8, 2, 2)
    C = np.array([[0.5, -0.3], [0.2, 0.4]])
    one = {name: parts[name][0] for name in ("F", "H", "R", "u", "d")}
    S = C @ one["R"]
    return {**one, "Q": np.eye(2) + S @ C.T, "S": S, "m0": parts["m0"], "P0": parts["P0"]}, y


def car(T, q, r, dt=0.1, start=0.0, seed=27803):
    """A car in the plane, position and velocity, whose position is seen."""
    rng = np.random.default_rng(seed)
    eye = np.eye(2)
    F = np.block([[eye, dt * eye], [0 * eye, eye]])
    Q = q * np.block([[dt**3 / 3 * eye, dt**2 / 2 * eye], [dt**2 / 2 * eye, dt * eye]])
    parts = {"F": F, "Q": Q, "H": np.eye(2, 4), "R": r * eye, "P0": np.eye(4),
             "m0": np.array([start, -start, 0.0, 0.0])}  # fmt: skip
    x, y, root = parts["m0"], np.empty((T, 2)), np.linalg.cholesky(Q)
    for k in range(T):
        x = F @ x + root @ rng.standard_normal(4)
        y[k] = x[:2] + np.sqrt(r) * rng.standard_normal(2)
    narrow = {name: a.astype(np.float32) for name, a in parts.items()}
    return narrow, {name: a.astype(np.float64) for name, a in narrow.items()}, y


def errors(got, exact):
    """The largest error of a mean in posterior deviations, of filter and smoother."""
    pairs = ((got.filtered, exact.filtered), (got, exact))
    return [np.max(np.abs(a.mean - b.mean) / np.sqrt(np.einsum("...ii->...i", b.covariance))) for a, b in pairs]


def radar(**options):
    """Position and velocity, seen as range and bearing from the origin; a wind that depends on the step."""
    return NonlinearGaussianModel(
        f=lambda x, k, xp: (x[0] + x[2], x[1] + x[3], x[2] + 0.05 * xp.cos(0.3 * k), 0.9 * x[3]),
        h=lambda x, k, xp: (xp.hypot(x[0], x[1]), xp.atan2(x[1], x[0])),
        Q=np.diag([0.01, 0.02, 0.01, 0.03]), R=np.diag([0.05, 0.002]), m0=np.array([6.0, 3.0, 0.1, 0.2]),
        P0=np.diag([0.5, 0.5, 0.1, 0.1]), **options,
    )  # fmt: skip


def simulated(model, T, seed=90817):
    rng = np.random.default_rng(seed)
    parts = model.linear
    x, y = rng.multivariate_normal(parts.m0, parts.P0), []
    for k in range(T):
        if k or model.prior_at == "before":
            x = rng.multivariate_normal(np.array(model.f(tuple(x), k, np)), parts.Q)
        y.append(np.array(model.h(tuple(x), k, np)) + np.sqrt(np.diag(parts.R)) * rng.standard_normal(model.ny))
    return np.array(y)


def as_nonlinear(parts, T, prior_at="before"):
    """The linear model as functions; H may have an axis of time."""
    F, H = parts["F"], np.broadcast_to(parts["H"], (T, *parts["H"].shape[-2:]))
    nx, ny = H.shape[2], H.shape[1]
    return NonlinearGaussianModel(
        lambda x, k, xp: tuple(sum(F[i, j] * x[j] for j in range(nx)) for i in range(nx)),
        lambda x, k, xp: tuple(sum(xp.asarray(H[:, i, j].copy())[k] * x[j] for j in range(nx)) for i in range(ny)),
        *(parts[name] for name in ("Q", "R", "m0", "P0")), prior_at=prior_at,
    )  # fmt: skip


def alike(columns, offset, *, prior, noise, T=12, seed=11):
    """A regression on a constant and on columns that differ little from `offset`, from a wide prior."""
    rng = np.random.default_rng(seed)
    X = np.concatenate([np.ones((T, 1, 1)), offset + rng.standard_normal((T, 1, columns - 1))], axis=2)
    parts = {
        "F": np.eye(columns),
        "Q": np.zeros((columns, columns)),
        "H": X,
        "R": np.array([[noise]]),
        "m0": np.zeros(columns),
        "P0": prior * np.eye(columns),
    }
    return parts, X @ np.ones(columns) + np.sqrt(noise) * rng.standard_normal((T, 1))


def partly_seen(seed):
    """Random dynamics without growth, one to four states, sharp observations of some, from priors of 1e3 to 1e12."""
    rng = np.random.default_rng(seed)
    nx = 1 + seed % 4
    F = rng.standard_normal((nx, nx))
    L = rng.standard_normal((nx, nx)) * (rng.random((nx, nx)) < 0.7)
    ny = int(rng.integers(1, nx + 1))
    parts = {
        "F": F / max(1.0, np.abs(np.linalg.eigvals(F)).max()),
        "Q": L @ L.T * 10.0 ** rng.uniform(-6, 0) if seed % 3 else 0.0 * F,
        "H": rng.standard_normal((ny, nx)),
        "R": np.diag(10.0 ** rng.uniform(-6, 0, ny)),
        "m0": np.zeros(nx),
        "P0": 10.0 ** rng.integers(3, 13) * np.eye(nx),
    }
    model = LinearGaussianModel(**{**parts, "P0": np.eye(nx)})
    return parts, np.asarray(simulate(model, 30, seed=seed).observations)
