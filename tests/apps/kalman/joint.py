"""All states and observations of a model as one Gaussian, and what conditioning makes of it: noises may correlate."""

import numpy as np


class Joint:
    """Mean and covariance of (x[0], ..., x[T-1], y[0], ..., y[T-1]) of a model with parts that all vary in time.

    Every variable is a linear map of independent sources: the prior, q[0], and the pairs (q[k+1], r[k]) with the
    covariance [[Q[k+1], S[k]], [S[k]', R[k]]].
    """

    def __init__(self, parts, prior_at="before"):
        F, Q, H, R, m0, P0, u, d = (parts[n] for n in ("F", "Q", "H", "R", "m0", "P0", "u", "d"))
        T, nx, ny = len(F), len(m0), H.shape[-2]
        S = parts.get("S", np.zeros((T, nx, ny)))
        n = nx + nx + T * (nx + ny)
        sources = np.zeros((n, n))
        sources[:nx, :nx], sources[nx : 2 * nx, nx : 2 * nx] = P0, Q[0]
        self.T, self.nx, self.ny, mean, maps, seen_mean, seen = T, nx, ny, [], [], [], []
        x, A = m0, np.eye(nx, n)
        for k in range(T):
            start = 2 * nx + k * (nx + ny)
            q, r = slice(start, start + nx), slice(start + nx, start + nx + ny)
            if k + 1 < T:
                sources[q, q], sources[q, r], sources[r, q] = Q[k + 1], S[k], S[k].T
            sources[r, r] = R[k]
            if k or prior_at == "before":
                before = nx if k == 0 else start - nx - ny
                x, A = F[k] @ x + u[k], F[k] @ A
                A[:, before : before + nx] += np.eye(nx)
            mean.append(x)
            maps.append(A)
            B = H[k] @ A
            B[:, r] += np.eye(ny)
            seen_mean.append(H[k] @ x + d[k])
            seen.append(B)
        A = np.concatenate([*maps, *seen])
        self.mean, self.covariance = np.concatenate([*mean, *seen_mean]), A @ sources @ A.T

    def given(self, y, last=None):
        """Means (T, nx) and covariances (T, nx, T, nx) of states, (T, ny) and (T, ny, T, ny) of observations, and the
        log-density of ``y[: last + 1]``, given that; NaN is missing."""
        T, nx, ny = self.T, self.nx, self.ny
        values = np.where((np.arange(T) <= (T if last is None else last))[:, None], y, np.nan).reshape(-1)
        seen = T * nx + np.flatnonzero(~np.isnan(values))
        r = values[seen - T * nx] - self.mean[seen]
        S = self.covariance[np.ix_(seen, seen)]
        K = np.linalg.solve(S, self.covariance[seen]).T
        mean, P = self.mean + K @ r, self.covariance - K @ self.covariance[seen]
        density = -0.5 * (r @ np.linalg.solve(S, r) + np.linalg.slogdet(2.0 * np.pi * S)[1]) if len(seen) else 0.0
        n = T * nx
        return (mean[:n].reshape(T, nx), P[:n, :n].reshape(T, nx, T, nx), mean[n:].reshape(T, ny),
                P[n:, n:].reshape(T, ny, T, ny), density)  # fmt: skip
