import sys, os, time
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
sys.path.insert(0, os.getcwd())
import numpy as np
from benchmarks import kalman_jax
from benchmarks.bench_kalman import random_model
from ensemble.apps.kalman import LinearGaussianModel, rts_smoother
Ts = [int(float(x)) for x in sys.argv[1:]]
models, exact = {}, {}
for T in Ts:
    p, y = random_model(T)
    models[T] = tuple({**p, "y": y}[n] for n in ("F", "Q", "H", "R", "u", "d", "y", "m0", "P0"))
    exact[T] = rts_smoother(LinearGaussianModel(**p), y)
t = time.time(); ps = kalman_jax.compiled(models); print("compile", round(time.time() - t, 1), flush=True)
for (T, name, form), run in ps.items():
    m, P = (np.asarray(a) for a in run())
    e = exact[T].filtered if name == "PKF" else exact[T]
    dev = np.sqrt(np.einsum("kii->ki", e.covariance))
    print(T, name, form, f"{kalman_jax.milliseconds(run):.3f} ms  error {np.max(np.abs(m - e.mean) / dev):.1e} {np.max(np.abs(P - e.covariance)) / np.max(np.abs(e.covariance)):.1e}", flush=True)
