"""Several forms in one pass over the elements: each result is that of its form alone."""

import numpy as np
import pytest

from ensemble._kernels.fem import form_cuda
from ensemble._kernels.fem import forms as form_kernels
from ensemble.apps import fem
from ensemble.apps.fem import spaces
from tests import cuda_on_cpu
from tests.apps.fem import form_problems as problems
from tests.apps.fem.form_problems import values_of

SCALAR = [problems.laplace, problems.mass, problems.diffusion, problems.advection]
MIXED = [*SCALAR, problems.momentum, problems.divergence, problems.gradient, problems.load, problems.force]


@pytest.fixture(scope="module")
def mesh():
    return problems.mesh_of()


@pytest.fixture
def fields(mesh, rng):
    wind = problems.samples(rng, 3, mesh.n_nodes, 3)
    return {"kappa": 1.5, "wind": wind, "source": problems.samples(rng, 3, mesh.n_elements)}


def alone(form, mesh, fields):
    return form.assemble(mesh, **fields)


@pytest.mark.slow  # compiles every form twice
def test_each_form_of_a_pass_gives_what_it_gives_alone(mesh, fields):
    for form, made in zip(MIXED, fem.assemble(mesh, *MIXED, **fields), strict=True):
        expected = values_of(alone(form, mesh, fields))
        assert values_of(made).shape == expected.shape
        np.testing.assert_allclose(values_of(made), expected, rtol=0, atol=2e-15 * abs(expected).max())


def test_forms_in_closed_form_have_the_bits_of_their_own_pass(mesh, fields):
    for form, made in zip(SCALAR[:3], fem.assemble(mesh, *SCALAR[:3], kappa=fields["source"]), strict=True):
        np.testing.assert_array_equal(values_of(made), values_of(form.assemble(mesh, kappa=fields["source"])))


def test_a_pass_with_samples_leaves_shared_matrices_shared(mesh, fields):
    counts = [made.n_samples for made in fem.assemble(mesh, *MIXED, **fields)]
    assert counts == [1, 1, 1, 3, 3, 1, 1, 3, 3]


def test_a_sample_of_a_pass_has_the_bits_of_its_own_run(mesh, fields):
    together = fem.assemble(mesh, *MIXED, **fields)
    for i in range(3):
        own = {name: value.sample(i) if hasattr(value, "sample") else value for name, value in fields.items()}
        for a, b in zip(together, fem.assemble(mesh, *MIXED, **own), strict=True):
            values = values_of(a)
            np.testing.assert_array_equal(values[:, i if values.shape[-1] > 1 else 0], values_of(b)[:, 0])


def test_results_of_an_earlier_call_are_filled_again(mesh, fields):
    forms = [problems.laplace, problems.advection, problems.load]
    first = fem.assemble(mesh, *forms, **fields)
    expected = [values_of(made).copy() for made in first]
    for made in first:
        values_of(made)[...] = np.nan
    again = fem.assemble(mesh, *forms, out=first, **fields)
    assert all(a is b for a, b in zip(first, again, strict=True))
    for made, values in zip(again, expected, strict=True):
        np.testing.assert_array_equal(values_of(made), values)
    with pytest.raises(ValueError, match="assemble: out must have 2 entries, one per form; got 3"):
        fem.assemble(mesh, *forms[:2], out=first, **fields)


def test_a_form_of_its_own_degree_has_a_pass_of_its_own(mesh, fields):
    @fem.bilinear_form(degree=1)
    def lumped(u, v, w):
        return w.source * w.x[0] * u * v

    made, _ = fem.assemble(mesh, lumped, problems.stabilised, **fields)
    np.testing.assert_array_equal(values_of(made), values_of(lumped.assemble(mesh, source=fields["source"])))


@pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="no g++")
@pytest.mark.parametrize("forms", [SCALAR, MIXED[2:7], MIXED[7:]], ids=["scalar", "blocks", "vectors"])
def test_device_code_of_a_pass_gives_the_values_of_the_cpu(mesh, fields, forms, monkeypatch):
    expected = [values_of(made).copy() for made in fem.assemble(mesh, *forms, **fields)]
    monkeypatch.setattr(form_kernels, "backend_of", lambda *arrays: "cuda")
    monkeypatch.setattr(form_cuda, "_kernel", problems.emulated)
    for made, values in zip(fem.assemble(mesh, *forms, **fields), expected, strict=True):
        np.testing.assert_allclose(values_of(made), values, rtol=0, atol=2e-15 * abs(values).max())


@pytest.mark.cuda
@pytest.mark.parametrize("forms", [SCALAR, MIXED[2:7], MIXED[7:]], ids=["scalar", "blocks", "vectors"])
def test_a_device_gives_the_values_of_the_cpu(mesh, fields, forms):
    import cupy

    expected = [values_of(made).copy() for made in fem.assemble(mesh, *forms, **fields)]
    for made, values in zip(fem.assemble(mesh, *forms, backend="cupy", **fields), expected, strict=True):
        np.testing.assert_allclose(cupy.asnumpy(values_of(made)), values, rtol=0, atol=2e-14 * abs(values).max())


def test_results_that_cannot_be_filled_are_refused_before_anything_is_written(mesh, fields, rng):
    other = problems.mesh_of((2, 2, 2))
    kappa = problems.samples(rng, 4, mesh.n_elements)
    good = problems.diffusion.assemble(mesh, kappa=kappa)
    fewer = problems.diffusion.assemble(mesh, kappa=1.0)
    elsewhere = problems.diffusion.assemble(other, kappa=problems.samples(rng, 4, other.n_elements))
    kept = good.values.copy()
    refused = [
        (fewer, ValueError, r"diffusion: out must hold float64 values of shape \(\d+, 4\); got float64 \(\d+, 1\)"),
        (elsewhere, ValueError, "diffusion: out must hold float64 values"),
        (good.astype(np.float32), ValueError, "diffusion: out must hold float64 values .* got float32"),
        (good.values, TypeError, r"diffusion: out must be a result of diffusion \(CrsMatrix\); got ndarray"),
    ]
    for out, error, text in refused:
        with pytest.raises(error, match=text):
            problems.diffusion.assemble(mesh, kappa=kappa, out=out)
        with pytest.raises(error, match="out must"):
            fem.assemble(mesh, problems.diffusion, problems.diffusion, kappa=2 * kappa, out=[good, out])
    with pytest.raises(ValueError, match="assemble: out must name each result once; got one twice"):
        fem.assemble(mesh, problems.diffusion, problems.diffusion, kappa=kappa, out=[good, good])
    vector = problems.load.assemble(mesh, source=1.0)
    with pytest.raises(ValueError, match=r"load: out must hold float64 values of shape \(\d+, 4\)"):
        problems.load.assemble(mesh, source=kappa, out=vector)
    np.testing.assert_array_equal(good.values, kept)


def test_the_cpu_needs_no_order_of_rows(monkeypatch):
    """It took a fifth of the set-up; kernels of devices ask for it."""
    monkeypatch.setattr(spaces, "compact_order", None)
    mesh = fem.TetMesh.box(2)
    assert fem.mass_matrix(mesh).values.sum() == pytest.approx(1.0)
    assert fem.stiffness_matrix(mesh).nnz == fem.mass_matrix(mesh).nnz
