"""Variants of the filter: check, time, count."""
import sys, os, time, statistics, json
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, os.getcwd())
import numpy as np, cupy as cp
from benchmarks import kalman_gpu as bench
from ensemble._kernels import kalman_cuda as kernels
from ensemble._kernels._streams import Recording

LOG = []
here = os.path.dirname(os.path.abspath(__file__))
new = "\n".join(open(f"ensemble/_kernels/kalman_{n}").read() for n in ("matrices.cuh","elements.cuh","steps.cuh","feed.cuh","scan.cuh","filter.cu"))
old = open(here + "/old.cu").read()
base = ["--std=c++17", "-DREAL=float", "-DNX=4", "-DNY=2", "-DPARTS=127"]
V = {"old": (old, ["-DROW=304", "-DPUT=1"], 304),
     "g1": (new, ["-DROW=208", "-DGROUP=1"], 208),
     "g2": (new, ["-DROW=432", "-DGROUP=2"], 432),
     "g2 nohint": (new, ["-DROW=432", "-DGROUP=2", '-DHINT=""'], 432),
     "g2 256B": (new, ["-DROW=432", "-DGROUP=2", '-DHINT=".L2::256B"'], 432),
     "g2 ahead 4": (new, ["-DROW=432", "-DGROUP=2", "-DAHEAD=4"], 432),
     "g2 ahead 6": (new, ["-DROW=432", "-DGROUP=2", "-DAHEAD=6"], 432),
     "g2 ahead 10": (new, ["-DROW=432", "-DGROUP=2", "-DAHEAD=10"], 432)}
only = sys.argv[1:]
if only: V = {k: v for k, v in V.items() if k in only}
def compile(item):
    name, (code, opts, row) = item
    with cp.cuda.Device(0):
        m = cp.RawModule(code=code, options=tuple(base + opts))
        f = m.get_function("filter_chunks")
        f.max_dynamic_shared_size_bytes = 256 * row
        return name, (m, f, 256 * row)
t = time.time()
with ThreadPoolExecutor(8) as pool: fs = dict(pool.map(compile, V.items()))
print("compile", round(time.time() - t, 1), {k: (f.num_regs, f.local_size_bytes) for k, (m, f, s) in fs.items()}, flush=True)

def runner(name, arrays, chunk):
    _, f, shared = fs[name]
    *parts, y, m0, P0 = arrays
    p = kernels.Problem(tuple(parts), y, (m0, P0), True, chunk, y.shape[1])
    T = y.shape[1]
    nb = p.n_blocks
    mean, cov, terms = kernels.room(y, 1, T, 4), kernels.room(y, 1, T, 4, 4), kernels.room(y, 1, T)
    totals, flags = kernels.room(y, nb, kernels.sizes(4)[0]), kernels.flags_of(y, nb)
    args = (*p.arguments, np.int32(nb), flags, totals, np.uint64(0), np.uint64(0), np.int32(0), mean, cov, terms)
    def run():
        flags.data.memset_async(0, flags.nbytes)
        f((nb,), (128,), args, shared_mem=shared)
        return mean, cov, terms
    run.keep = (p, mean, cov, terms)
    return run

with cp.cuda.Stream(non_blocking=True) as st:
    for T in [int(float(x)) for x in os.environ.get("T", "1e4,1e5,1e6,1e7").split(",")]:
        arrays, exact = bench.problem(cp, T)
        chunks = {10_000: [2, 4], 100_000: [4, 8], 1_000_000: [30, 32], 10_000_000: [148, 296, 600]}[T]
        if os.environ.get("CHUNKS"): chunks = [int(c) for c in os.environ["CHUNKS"].split(",")]
        first = {}
        for chunk in chunks:
            for name in fs:
                run = runner(name, arrays, chunk)
                for a in run.keep[1:]: a.fill(float("nan"))
                out = run()
                st.synchronize()
                bad = [int(cp.isnan(a).sum()) for a in out]
                err = bench.errors(cp, out[:2], exact["PKF"]) if exact is not None else (float("nan"),) * 2
                ref = first.setdefault(chunk, [a.copy() for a in out])
                dif = float(max(cp.abs(a - b).max() for a, b in zip(out, ref)))
                if os.environ.get("NCU"): continue
                rec = Recording(lambda: run())
                ms = bench.milliseconds(cp, rec, 30, 5)
                LOG.append(f"T {T:>8} chunk {chunk:>4} {name:>12}: {ms:.4f} ms  nan {bad} err {err[0]:.1e} {err[1]:.1e} diff {dif:.1e}")
print("\n".join(LOG))
