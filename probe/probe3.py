"""Variants of the filter: check, time."""
import sys, os, time
from concurrent.futures import ThreadPoolExecutor
sys.path.insert(0, os.getcwd())
import numpy as np, cupy as cp
from benchmarks import kalman_gpu as bench
from ensemble._kernels import kalman_cuda as kernels
from ensemble._kernels._streams import Recording
new = "\n".join(open(f"ensemble/_kernels/kalman_{n}").read() for n in ("matrices.cuh","elements.cuh","steps.cuh","feed.cuh","scan.cuh","filter.cu"))
base = ["--std=c++17", "-DREAL=float", "-DNX=4", "-DNY=2", "-DPARTS=127"]
ROW = {1: 208, 2: 432, 4: 848}
def v(g, d=2, *extra): return (g, d, ["-DGROUP=%d" % g, "-DDEPTH=%d" % d, "-DROW=%d" % ROW[g], *extra])
V = {"g2": v(2), "g2 h0": v(2, 2, "-DHINTS=0"), "g2 h1": v(2, 2, "-DHINTS=1"), "g2 stream": v(2, 2, "-DSTREAM"),
     "g2 rolled": v(2, 2, "-DROLLED"), "g2 noinl": v(2, 2, "-DSCAN=__noinline__"), "g1": v(1), "g1 d4": v(1, 4), "g1 d8": v(1, 8),
     "g2 d4": v(2, 4), "g2 d3": v(2, 3), "g4": v(4), "g4 rolled": v(4, 2, "-DROLLED"), "g2 d4 rolled": v(2, 4, "-DROLLED"),
     "g2 nowork": v(2, 2, "-DNOWORK"), "g2 noask": v(2, 2, "-DNOASK"), "g4 nowork": v(4, 2, "-DNOWORK"), "g2d4 noask": v(2, 4, "-DNOASK")}
def compile(item):
    name, (g, d, opts) = item
    with cp.cuda.Device(0):
        m = cp.RawModule(code=new, options=tuple(base + opts))
        f = m.get_function("filter_chunks")
        f.max_dynamic_shared_size_bytes = d * 128 * ROW[g]
        return name, (m, f, d * 128 * ROW[g])
t = time.time()
with ThreadPoolExecutor(16) as pool: fs = dict(pool.map(compile, V.items()))
print("compile", round(time.time() - t, 1), {k: (f.num_regs, f.local_size_bytes) for k, (m, f, s) in fs.items() if f.local_size_bytes}, flush=True)
def runner(name, arrays, chunk, which=0):
    _, f, shared = fs[name]
    *parts, y, m0, P0 = arrays
    p = kernels.Problem(tuple(parts), y, (m0, P0), True, chunk, y.shape[1])
    B, T = y.shape[:2]
    nb = p.n_blocks * B
    mean, cov, terms = kernels.room(y, B, T, 4), kernels.room(y, B, T, 4, 4), kernels.room(y, B, T)
    totals, flags = kernels.room(y, nb, kernels.sizes(4)[0]), kernels.flags_of(y, nb)
    local = kernels.room(y, nb * 128 * 44) if which else np.uint64(0)
    def run(which=which):
        flags.data.memset_async(0, flags.nbytes)
        f((nb,), (128,), (*p.arguments, flags, totals, np.uint64(0), local, np.int32(which), mean, cov, terms), shared_mem=shared)
        return mean, cov, terms
    if which == 2: run(1)
    run.keep = (p, mean, cov, terms)
    return run
ALL = list(V)
REAL_ONES = [k for k in ALL if "no" not in k or "noinl" in k]
PLAN = {10_000: {2: ["g2", "g2 rolled", "g2 noinl", "g1", "g4"], 4: ["g2", "g2 noinl", "g1", "g4", "g1 d4"]},
        100_000: {8: ["g2", "g2 noinl", "g1", "g4 rolled"], 6: ["g2", "g1"]},
        1_000_000: {32: ["g2", "g2 h0", "g2 h1", "g2 stream", "g2 rolled", "g2 noinl", "g1", "g2 nowork", "g2 noask"], 30: ["g2"], 34: ["g2"],
                    60: ["g1", "g1 d4", "g1 d8", "g2 d3", "g2 d4", "g2 d4 rolled", "g4", "g4 rolled", "g4 nowork", "g2d4 noask"], 64: ["g2 d4", "g4"]},
        10_000_000: {148: ["g2", "g2 h0", "g2 h1", "g2 stream", "g2 rolled"], 296: ["g2", "g2 h1", "g2 rolled"],
                     600: ["g1", "g1 d4", "g1 d8", "g2", "g2 d3", "g2 d4", "g2 d4 rolled", "g4", "g4 rolled"], 300: ["g4", "g2 d4"]}}
with cp.cuda.Stream(non_blocking=True) as st:
    for T, cuts in PLAN.items():
        arrays, exact = bench.problem(cp, T)
        for chunk, names in cuts.items():
            for name in names:
                run = runner(name, arrays, chunk)
                for a in run.keep[1:]: a.fill(float("nan"))
                out = run()
                st.synchronize()
                bad = sum(int(cp.isnan(a).sum()) for a in out)
                err = bench.errors(cp, out[:2], exact["PKF"]) if exact is not None else (float("nan"),) * 2
                ms = bench.milliseconds(cp, Recording(lambda: run()), 30, 5)
                print(f"T {T:>8} chunk {chunk:>4} {name:>12}: {ms:.4f} ms  nan {bad} err {err[0]:.1e} {err[1]:.1e}", flush=True)
                del run, out
        if T == 1_000_000:
            for name, chunk in (("g2", 32), ("g4", 60)):
                for which in (1, 2):
                    run = runner(name, arrays, chunk, which)
                    print(f"pass {which} {name} {bench.milliseconds(cp, Recording(lambda: run()), 30, 5):.4f}")
        if T == 100_000:
            *parts, y, m0, P0 = arrays
            many = (*parts, cp.ascontiguousarray(cp.broadcast_to(y, (10, T, 2))), m0, P0)
            for name, chunk in (("g2", 32), ("g2 noask", 32), ("g2 nowork", 32), ("g4", 60), ("g2 d4", 60)):
                run = runner(name, many, chunk)
                print(f"ten series of one model {name} {bench.milliseconds(cp, Recording(lambda: run()), 30, 5):.4f}")
    arrays, _ = bench.problem(cp, 10_000)
    run = lambda: kernels.filter_chunks(*arrays, True, 4)
    run(); st.synchronize()
    print("call, events", [round(bench.milliseconds(cp, run, 10, 2), 4) for _ in range(6)])
    def clock(f, n=300):
        st.synchronize(); t = time.perf_counter()
        for _ in range(n): f()
        e = time.perf_counter() - t; st.synchronize()
        return round(e / n * 1e6, 2)
    *parts, y, m0, P0 = arrays
    def wall():
        run(); st.synchronize()
    sh = ((1, 10000, 4), (1, 10000, 4, 4), (1, 10000), (20, 44))
    p = kernels.Problem(tuple(parts), y, (m0, P0), True, 4, 10000)
    a = kernels.rooms(y, 20, *sh)
    f = kernels.function("float32", 4, 2, "filter_chunks")
    args = (*p.arguments, a[4], a[3], kernels.NOTHING, kernels.NOTHING, kernels.WHOLE, *a[:3])
    print("call+sync", clock(wall), "queue", clock(run), "Problem", clock(lambda: kernels.Problem(tuple(parts), y, (m0, P0), True, 4, 10000)),
          "rooms", clock(lambda: kernels.rooms(y, 20, *sh)), "launch", clock(lambda: f((20,), (128,), args, shared_mem=kernels.room_of("float32", 4, 2, "filter_chunks"))),
          "memset", clock(lambda: a[4].data.memset_async(0, 84)))
    from ensemble.apps.kalman import LinearGaussianModel, kalman_filter
    model = LinearGaussianModel(**{n: x[0] for n, x in zip(("F", "Q", "H", "R", "u", "d"), parts)}, m0=m0[0], P0=P0[0])
    kalman_filter(model, y[0]); st.synchronize()
    print("kalman_filter, events", [round(bench.milliseconds(cp, lambda: kalman_filter(model, y[0]), 10, 2), 4) for _ in range(3)])
    import cProfile, pstats, io
    pr = cProfile.Profile(); pr.enable(); [kalman_filter(model, y[0]) for _ in range(100)]; pr.disable()
    s = io.StringIO(); pstats.Stats(pr, stream=s).sort_stats("cumtime").print_stats(22); print("\n".join(l[:110] for l in s.getvalue().splitlines() if l.strip())[:2800])
    pr = cProfile.Profile(); pr.enable(); [run() for _ in range(200)]; pr.disable()
    s = io.StringIO(); pstats.Stats(pr, stream=s).sort_stats("tottime").print_stats(10); print("\n".join(l[:110] for l in s.getvalue().splitlines() if l.strip())[:1500])
