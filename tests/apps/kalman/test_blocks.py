"""The CUDA kernels for any size, run on the CPU: a block of threads per chunk, against the recursions of the CPU."""

import numpy as np
import pytest

from ensemble._kernels import kalman_blocks
from ensemble._kernels.scan import SCANS
from ensemble.apps.kalman import LinearGaussianModel, rts_smoother
from tests import cuda_on_cpu, nvrtc
from tests.apps.kalman.models import close, random_parts, with_gaps

SENTINEL = """
#include <vector>
static std::vector<REAL> memory;
static REAL* guarded(long long n)
{
    if ((long long)memory.size() != n + 64) memory.assign(n + 64, REAL(12345.5));
    return memory.data();
}
#define WORKSPACE Workspace work{guarded(sizes.space)};
extern "C" __global__ void check_workspace(int* clean)
{
    for (size_t i = memory.size() - 64; i < memory.size(); ++i) *clean = *clean && memory[i] == REAL(12345.5);
}
"""


@pytest.fixture(scope="module")
def on_cpu():
    """Launch the kernels on this machine's processor; an error where one leaves its work space."""
    if cuda_on_cpu.COMPILER is None:
        pytest.skip("no g++")
    modules = {}

    def function(dtype, name):
        if dtype not in modules:
            text = SENTINEL + kalman_blocks.source()
            names = (*kalman_blocks.KERNELS, "check_workspace")
            modules[dtype] = cuda_on_cpu.Module(text, kalman_blocks.compile_options(dtype), names)
        run, check = (modules[dtype].get_function(kernel) for kernel in (name, "check_workspace"))

        def checked(*arguments, **options):
            run(*arguments, **options)
            clean = np.ones(1, np.int32)
            if name != "sum_terms":
                check((1,), (1,), (clean,))
            assert clean[0], f"{name} took more work space than it has"

        return checked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kalman_blocks, "function", function)
        patch.setattr(kalman_blocks, "threads_of", lambda nx, ny: 32)
        yield


def arguments_of(B, T, nx, ny, dtype=np.float64, gaps=True):
    parts, y = random_parts(T, nx, ny, batch=(B,), dtype=dtype)
    y = (with_gaps(y) if gaps else y).astype(dtype)
    arrays = [parts[name] for name in ("F", "Q", "H", "R", "u", "d")]
    return parts, y, (*arrays, y, parts["m0"], parts["P0"], True)


def expected(parts, y, prior="before"):
    wide = {name: a.astype(np.float64) for name, a in parts.items()}
    return rts_smoother(LinearGaussianModel(**wide, prior_at=prior), y.astype(np.float64))


def check(got, smooth, tolerance=1e-9):
    m, P, terms, sums, *smoothed = got
    close(m, smooth.filtered.mean, tolerance)
    close(P, smooth.filtered.covariance, tolerance)
    close(terms, smooth.log_likelihoods, tolerance)
    close(sums, smooth.log_likelihood, tolerance)
    if smoothed:
        close(smoothed[0], smooth.mean, tolerance)
        close(smoothed[1], smooth.covariance, tolerance)


@pytest.mark.parametrize("nx, ny", [(1, 1), (6, 2), (6, 6), (2, 6), (7, 5), (5, 8), (9, 2), (16, 3)])
def test_chunks_of_any_size_are_the_recursions(on_cpu, nx, ny):
    parts, y, arguments = arguments_of(2, 27, nx, ny)
    smooth = expected(parts, y)
    check(kalman_blocks.two_filter_blocks(arguments, "chunked"), smooth)
    mean, covariance = kalman_blocks.smooth_blocks(arguments, smooth.filtered.mean, smooth.filtered.covariance, "chunked")
    close(mean, smooth.mean)
    close(covariance, smooth.covariance)
