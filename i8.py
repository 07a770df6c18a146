import numpy as np, ensemble as en, warnings, contextlib, logging, asyncio, concurrent.futures, functools, traceback, sys
from scipy import stats
x=en.Ensemble(np.array([1.,2.,3.])); V=en.Ensemble(np.array([[1.,2.,3.],[3.,-1.,0.]]))
def bare(v):
    try: return v if v>1.5 else -v
    except: return 99.
def exc(v):
    try: return v if v>1.5 else -v
    except Exception: return 99.
def supp(v):
    with contextlib.suppress(Exception): return v if v>1.5 else -v
    return 99.
def suppv(v):
    with contextlib.suppress(ValueError,TypeError): return v if v>1.5 else -v
    return 99.
def fin(v):
    try: return v if v>1.5 else -v
    finally: return 99.
def fin_loop(v):
    for k in range(2):
        try: return v if v>1.5 else -v
        finally: continue
    return 99.
def log(v):
    try: return v if v>1.5 else -v
    except Exception as e: logging.getLogger("x").debug("%s",e); return 99.
def nested(v):
    try:
        try: return v if v>1.5 else -v
        except ValueError: return 1.
    except Exception: return 99.
def named(v):
    try: return v if v>1.5 else -v
    except en.DivergenceError: return 99.
def reraise(v):
    try: return v if v>1.5 else -v
    except Exception as e: raise RuntimeError("x") from e
def two(v):
    def g(q): return q if q>1.5 else -q
    try: return g(v)
    except Exception: return 99.
def hasat(v): return getattr(P(v),"bad",99.)
class P:
    def __init__(s,v): s.v=v
    def __getattr__(s,n):
        if n=="bad":
            try: return s.v if s.v>1.5 else 0
            except Exception: raise AttributeError(n)
        raise AttributeError(n)
class CM:
    def __enter__(s): return s
    def __exit__(s,*a): return True
def cm(v):
    with CM(): return v if v>1.5 else -v
    return 99.
def thread(v):
    with concurrent.futures.ThreadPoolExecutor(1) as ex:
        f=ex.submit(lambda: v if v>1.5 else -v)
        return 99. if f.exception() else f.result()
def aio(v):
    async def g(): return v if v>1.5 else -v
    async def m():
        r=await asyncio.gather(g(),return_exceptions=True); return 99. if isinstance(r[0],Exception) else r[0]
    return asyncio.run(m())
def gen(v):
    def g():
        try: yield v if v>1.5 else -v
        except Exception: yield 99.
    return next(g())
def tup(v):
    try: return v if v>1.5 else -v
    except (ValueError,Exception): return 99.
E_=(KeyError,Exception)
def tupvar(v):
    try: return v if v>1.5 else -v
    except E_: return 99.
def arith(v):
    try: return v if v>1.5 else -v
    except ArithmeticError: return 99.
def valerr(v):
    try: return float(v)
    except (TypeError,ValueError): return 99.
def basee(v):
    try: return v if v>1.5 else -v
    except BaseException: return 99.
def excgroup(v):
    try: return v if v>1.5 else -v
    except* Exception: pass
    return 99.
def nump(v):
    try: return np.asarray(v)*2.
    except Exception: return 99.
def hashy(v):
    try: return {1.:2.}[v]
    except Exception: return 99.
def isn(v):
    try: return float(v)
    except TypeError: return 99.
def ret_none(v):
    try: float(v)
    except Exception: return None
def usesdef(v):
    r=99.
    try: r=v if v>1.5 else -v
    except Exception: pass
    return r
def excepthook(v):
    try: return v if v>1.5 else -v
    except Exception: print(traceback.format_exc()[:0],end=""); return 99.
fs=[bare,exc,supp,suppv,fin,fin_loop,log,nested,named,reraise,two,hasat,cm,thread,aio,gen,tup,tupvar,arith,valerr,basee,excgroup,nump,hashy,isn,ret_none,usesdef,excepthook]
I=en.Inputs(a=stats.uniform(1,2))
for f in fs:
    out=[]
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        try: r=f(x); r=getattr(r,"samples",r)
        except BaseException as e: r=type(e).__name__
    out.append(f"direct {r} warn={[q.category.__name__ for q in w]}")
    ref=[]
    for q in x.samples:
        try: ref.append(f(q))
        except BaseException as e: ref.append(type(e).__name__)
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        r=en.run(f,x); got=[r.sample(i) if i not in r.errors else type(r.errors[i]).__name__ for i in range(3)]
    out.append("run "+("ok" if repr(got)==repr(ref) or got==ref else f"BAD {got} vs {ref}"))
    for nm,k in (("prop",{}),("retry",dict(on_failure="retry"))):
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            try: r=en.propagate(lambda s:f(s.a),I,8,seed=1,progress=False,**k); r=str(r).replace("\n","|")[-60:]
            except BaseException as e: r=type(e).__name__+str(e)[:60]
        out.append(f"{nm}: {r} warn={len(w)}")
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        try:
            with en.divergence("raise"): r=f(x)
        except BaseException as e: r=type(e).__name__
    out.append(f"block {getattr(r,'samples',r)} warn={len(w)}")
    print(f.__name__,"|"," || ".join(out))
