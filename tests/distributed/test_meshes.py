"""Tetrahedral meshes over ranks: entries with the serial bits, solutions with the same bits on any number of ranks."""

import hashlib

import numpy as np
import pytest

import ensemble as en
from ensemble.apps import fem
from ensemble.distributed import serial
from ensemble.krylov import bicgstab, cg
from ensemble.linalg import Diagonal, apply_dirichlet
from ensemble.multigrid import rigid_body_modes, smoothed_aggregation

pytestmark = pytest.mark.slow  # starts of MPI and compilation of forms: half a minute

CELLS, DOMAINS, SAMPLES = (5, 4, 6), 7, 3


def terrain(x, y):
    return 0.1 * np.sin(3.0 * x) * y


def mesh_of(comm=None, cells=CELLS, domains=DOMAINS):
    more = {} if comm is None else {"comm": comm, "domains": domains}
    return fem.TetMesh.box(cells, jitter=0.15, terrain=terrain, seed=5, **more)


def local(values, mesh, where):
    """The rank's part of a whole array or Ensemble, at its own nodes, all its nodes or its elements."""
    part = mesh.part
    if part is None:
        return values
    rows = {"own": part.partition.rows, "nodes": part.nodes, "elements": part.elements}[where]
    return en.Ensemble(values.samples[rows], values.sample_set) if isinstance(values, en.Ensemble) else values[rows]


@fem.bilinear_form
def transport(u, v, w):
    return w.kappa * fem.dot(fem.grad(u), fem.grad(v)) + fem.dot(w.velocity, fem.grad(u)) * v + w.h * u * v


@fem.bilinear_form
def exchange(u, v, w):
    return w.alpha * u * v * (1.0 + w.n[2] * w.n[2])


@fem.bilinear_form(trial="vector", test="vector")
def elasticity(u, v, w):
    eps_u, eps_v = fem.sym_grad(u), fem.sym_grad(v)
    return 2.0 * w.mu * fem.ddot(eps_u, eps_v) + 1.5 * w.mu * fem.div(u) * fem.div(v) + 0.1 * fem.dot(u, v)


@fem.bilinear_form(trial="vector", test="scalar")
def divergence(u, v, w):
    return fem.div(u) * v


@fem.linear_form
def load(v, w):
    return w.f * v * w.x[0]


@fem.linear_form(test="vector")
def weight(v, w):
    return w.mu * v[2] + v[0] * w.h


@fem.linear_form
def flux(v, w):
    return w.g * v


def results(mesh):
    """Matrices and vectors of all kinds on a mesh, whole or over ranks."""
    rng = np.random.default_rng(9)
    whole = mesh.n_nodes if mesh.part is None else mesh.part.partition.n
    elements = 6 * np.prod(CELLS)
    at_nodes, velocity = en.Ensemble(rng.uniform(1.0, 2.0, (whole, SAMPLES))), rng.standard_normal((whole, 3))
    per_element = en.Ensemble(rng.uniform(1.0, 2.0, (elements, SAMPLES)))
    top = fem.BoundarySpace(mesh, lambda x, y, z: z > 0.99)
    few = fem.BoundarySpace(mesh, mesh.facets_where(lambda x, y, z: (x < 1e-9) & (y < 0.2)), gradients=True)
    own, inside = local(at_nodes, mesh, "own"), local(per_element, mesh, "elements")
    matrices = {
        "mass": fem.mass_matrix(mesh, own),
        "mass of a number": fem.mass_matrix(mesh, 2.0),
        "stiffness": fem.stiffness_matrix(mesh, inside),
        "transport": transport.assemble(mesh, kappa=own, velocity=local(velocity, mesh, "nodes")),
        "exchange": exchange.assemble(top, alpha=own),
        "with gradients": fem.bilinear_form(lambda u, v, w: fem.dot(fem.grad(v), w.n) * u).assemble(few),
        "elasticity": elasticity.assemble(mesh, mu=own),
        "elasticity of elements": elasticity.assemble(mesh, mu=inside),
        "divergence": divergence.assemble(mesh),
    }
    vectors = {
        "load": load.assemble(mesh, f=own),
        "weight": weight.assemble(mesh, mu=own),
        "flux": flux.assemble(top, g=3.0),
    }
    together = fem.assemble(mesh, transport, load, kappa=own, velocity=local(velocity, mesh, "own"), f=inside)
    return matrices | {"together": together[0]}, vectors | {"together": together[1]}


def rows_of(comm):
    """This rank's entries of all results, by the caller's numbers."""
    mesh = mesh_of(comm)
    matrices, vectors = results(mesh)
    entries = {}
    for name, A in matrices.items():
        over, across = (mesh.part.blocked(size) for size in (n // mesh.part.partition.n for n in A.shape))
        rows = np.repeat(over.rows, np.diff(A.indptr))
        entries[name] = rows, across.caller_of(A.numbers), A.values
    found = {}
    for name, b in vectors.items():
        partition = mesh.part.blocked(3 if name == "weight" else 1)
        found[name] = partition.rows, b.samples
    return entries, found


def solved(comm, cells, domains, n_samples, dtype=None):
    """Digests of an elastic solution and of one of diffusion, on rank 0."""
    mesh = mesh_of(comm, cells, domains)
    nodes, unknowns = mesh.part.partition, mesh.part.blocked(3)
    mu = fem.at_nodes(en.Ensemble(np.random.default_rng(3).uniform(1.0, 5.0, (nodes.n, n_samples))[nodes.rows]))
    A = elasticity.assemble(mesh, mu=mu)
    b = weight.assemble(mesh, mu=mu)
    B = rigid_body_modes(mesh.points[mesh.part.own], center=(0.5, 0.5, 0.5))
    M = smoothed_aggregation(A, near_nullspace=B, block_size=3, dtype=dtype)
    digests = [digest(unknowns, cg(A, b, M=M, rtol=1e-9))]
    K = transport.assemble(mesh, kappa=mu, velocity=np.zeros(3))
    digests.append(digest(nodes, cg(K, load.assemble(mesh, f=1.0), M=smoothed_aggregation(K), rtol=1e-9)))
    bottom = np.isin(np.arange(mesh.n_nodes), mesh.boundary_nodes(lambda x, y, z: z <= terrain(x, y) + 1e-9))
    clamped, height = np.flatnonzero(np.repeat(bottom[mesh.part.own], 3)), mesh.points[mesh.part.own, 2]
    held, right = apply_dirichlet(A, b, clamped, np.repeat(height, 3)[clamped])
    digests.append(digest(unknowns, cg(held, right, M=M.update(held), rtol=1e-9)))
    return digests


@fem.bilinear_form
def inertia(u, v, w):
    return u * upwind(v, w)


@fem.bilinear_form
def carried(u, v, w):
    return fem.dot(w.wind, fem.grad(u)) * upwind(v, w) + w.mixing * fem.dot(fem.grad(u), fem.grad(v))


def upwind(v, w):
    speed = np.sqrt(fem.dot(w.wind, w.wind) + 1e-6)
    return v + w.h / (2.0 * speed) * fem.dot(w.wind, fem.grad(v))


def hill(x, y):
    return 0.2 * np.exp(-8.0 * ((x - 0.5) ** 2 + (y - 0.5) ** 2))


def mountain_steps(comm, cells, domains, n_samples, count=3):
    """The concentration after steps of the theta method over a hill, on rank 0, and iterations of each step."""
    more = {} if comm is None else {"comm": comm, "domains": domains}
    mesh = fem.TetMesh.box(cells, terrain=hill, **more)
    own = slice(None) if comm is None else mesh.part.own
    speed = 1.0 + 0.2 * np.random.default_rng(2).random(n_samples)
    inflow = np.flatnonzero(mesh.points[own, 0] == 0.0)
    c, counts, step = en.Ensemble(np.zeros((mesh.points[own].shape[0], n_samples))), [], 0.05
    for k in range(count):
        wind = np.stack([np.ones(mesh.n_elements), np.zeros(mesh.n_elements), mesh.points[mesh.tets[:, 0], 2]], axis=1)
        wind = fem.per_element(en.Ensemble(wind[..., None] * speed * (1.0 + 0.1 * np.sin(k))))
        M, A = fem.assemble(mesh, inertia, carried, wind=wind, mixing=0.05)
        left, right = apply_dirichlet(M + 0.5 * step * A, M @ c - 0.5 * step * (A @ c), inflow, 1.0, symmetric=False)
        solved = bicgstab(left, right, x0=c, M=Diagonal(1.0 / left.diagonal()), rtol=1e-10)
        c = solved.raise_if_failed().x
        counts.append(solved.iterations.tolist())
    return (c if comm is None else mesh.part.partition.gather(c)), counts


def robin(comm):
    """Diffusion with an exchange at the boundary, whose matrix has a graph of its own."""
    mesh = mesh_of(comm)
    A = 2.0 * fem.stiffness_matrix(mesh) + exchange.assemble(fem.BoundarySpace(mesh), alpha=3.0) - fem.mass_matrix(mesh)
    return digest(mesh.part.partition, cg(A, load.assemble(mesh, f=1.0), rtol=1e-9))


def clamped(mesh, known):
    """An elastic system with known unknowns, of 0 and of other values."""
    rows = np.arange(0, 3 * mesh.n_nodes if mesh.part is None else mesh.part.blocked(3).n_local, 1)
    callers = rows if mesh.part is None else mesh.part.blocked(3).rows
    rows, callers = rows[callers % 7 == 0], callers[callers % 7 == 0]
    A, b = elasticity.assemble(mesh, mu=1.0), weight.assemble(mesh, mu=1.0)
    return [
        apply_dirichlet(A, b, rows, 0.0 if known is None else known[callers], symmetric=symmetric)
        for symmetric in (True, False)
    ]


def digest(partition, result):
    x = partition.gather(result.x)
    if x is None:
        return None
    assert result.converged.all()
    found = hashlib.md5(np.ascontiguousarray(x.samples).tobytes() + repr(result.iterations.tolist()).encode())
    return found.hexdigest(), int(result.iterations.max()), float(x.samples.mean())


def geometry(comm):
    """What a rank knows of its part."""
    mesh = mesh_of(comm)
    part = mesh.part
    facets = np.sort(part.nodes[mesh.boundary_facets], axis=1)
    own = np.zeros(mesh.n_nodes, bool)
    own[part.own] = True
    bottom = mesh.boundary_nodes(lambda x, y, z: z == 0.0)
    return {
        "nodes": part.nodes, "elements": part.elements, "points": mesh.points, "volumes": mesh.volumes,
        "tets": part.nodes[mesh.tets], "facets": facets, "rows": part.partition.rows,
        "own": part.nodes[own], "bottom": part.nodes[bottom[own[bottom]]],
        "touched": bool(own[mesh.tets].any(axis=1).all()),
    }  # fmt: skip


def refused(comm):
    """The errors that every rank raises."""
    texts = []

    def note(call):
        with pytest.raises((ValueError, TypeError)) as error:
            call()
        texts.append(str(error.value).split("; got")[0])

    mesh, last = mesh_of(comm), comm.rank == comm.size - 1
    own, n_own = mesh.n_nodes, mesh.part.partition.n_local
    note(lambda: fem.TetMesh([[0.0, 0.0]], [[0, 1, 2, 3]], comm=comm))
    note(lambda: fem.TetMesh.box(-2, comm=comm))
    note(lambda: fem.mass_matrix(mesh, np.ones(own + 1) if last else np.ones(own)))
    note(lambda: fem.mass_matrix(mesh, out=fem.mass_matrix(mesh)))
    note(lambda: fem.mass_matrix(mesh, backend="cupy"))
    note(lambda: fem.LinearSpace(mesh, np.zeros(own, int)))
    note(lambda: fem.BoundarySpace(mesh, lambda x, y, z: z > 7.0))
    note(mesh.refined)
    note(lambda: mesh.renumbered("rcm"))
    note(lambda: fem.periodic(mesh, 0))
    note(lambda: fem.pressure_stabilisation(mesh))
    if comm.size > 1:
        note(lambda: fem.mass_matrix(mesh, np.ones(n_own) if last else np.ones(own)))
    return texts


def everything(comm):
    """What the tests below look at, in one start of the ranks."""
    mesh = mesh_of(comm)
    return {
        "rows": rows_of(comm), "geometry": geometry(comm), "refused": refused(comm),
        "solved": [solved(comm, CELLS, DOMAINS, n) for n in (1, 8)],
        "clamped": [
            (mesh.part.blocked(3).rows, A.values, A.numbers, b.samples)
            for known in (None, np.arange(3.0 * mesh.part.partition.n)) for A, b in clamped(mesh, known)
        ],
        "steps": digits(mountain_steps(comm, (5, 4, 3), 5, 8)), "robin": robin(comm),
        "few": solved(comm, (2, 1, 1), 2, 1),
    }  # fmt: skip


def digits(found):
    c, counts = found
    return None if c is None else hashlib.md5(np.ascontiguousarray(c.samples).tobytes()).hexdigest(), counts


@pytest.fixture(scope="module")
def alone():
    return everything(serial())


@pytest.fixture(scope="module", params=[2, 3])
def found(request, mpi):
    return mpi(everything, request.param, limit=300.0)


@pytest.fixture(scope="module")
def whole():
    return results(mesh_of())


NAMES = (
    "mass", "mass of a number", "stiffness", "transport", "exchange", "with gradients", "elasticity",
    "elasticity of elements", "divergence", "together",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_entries_have_the_serial_bits(found, whole, name):
    A = whole[0][name]
    A = A.to_crs() if hasattr(A, "to_crs") else A
    expected = {(i, j): v.tobytes() for i, j, v in zip(A.graph.row_of_entry, A.graph.indices, A.values, strict=True)}
    parts = [each["rows"][0][name] for each in found]
    assert sum(rows.size for rows, _, _ in parts) == A.graph.nnz
    for rows, columns, values in parts:
        assert all(expected[i, j] == v.tobytes() for i, j, v in zip(rows, columns, values, strict=True))


@pytest.mark.parametrize("name", ["load", "weight", "flux", "together"])
def test_vectors_have_the_serial_bits(found, whole, name):
    b = whole[1][name].samples
    b = b.reshape(-1, b.shape[-1])
    for each in found:
        rows, values = each["rows"][1][name]
        assert values.tobytes() == np.ascontiguousarray(b[rows]).tobytes()
    assert sum(each["rows"][1][name][0].size for each in found) == len(b)


def test_solutions_have_the_bits_of_one_rank(found, alone):
    for name in ("solved", "few", "steps", "robin"):
        assert found[0][name] == alone[name], name
    assert all(count < 40 for digests in alone["solved"] for _, count, _ in digests)


def test_known_unknowns_are_those_of_the_serial_matrix(found):
    mesh = mesh_of()
    known = np.arange(3.0 * mesh.n_nodes)
    for place, (A, b) in enumerate(clamped(mesh, None) + clamped(mesh, known)):
        values, right = A.to_crs().values, b.samples.reshape(-1)
        parts = [each["clamped"][place] for each in found]
        assert np.array_equal(np.sort(np.concatenate([v for _, v, _, _ in parts]), axis=0), np.sort(values, axis=0))
        for rows, _, _, own in parts:
            np.testing.assert_allclose(own[:, 0], right[rows], rtol=1e-12, atol=1e-10)


def test_elastic_solutions_are_those_of_the_serial_matrix(alone):
    mesh = mesh_of()
    mu = en.Ensemble(np.random.default_rng(3).uniform(1.0, 5.0, (mesh.n_nodes, 8)))
    A, b = elasticity.assemble(mesh, mu=mu), weight.assemble(mesh, mu=mu)
    M = smoothed_aggregation(A, near_nullspace=rigid_body_modes(mesh.points))
    result = cg(A, b, M=M, rtol=1e-9)
    _, count, mean = alone["solved"][1][0]
    assert count <= result.iterations.max() + 1
    assert mean == pytest.approx(result.x.samples.mean(), rel=1e-6)


def test_steps_over_a_hill_are_those_of_one_process():
    whole, counts = mountain_steps(None, (5, 4, 3), None, 8)
    c, own = mountain_steps(serial(), (5, 4, 3), 5, 8)
    np.testing.assert_allclose(c.samples, whole.samples, rtol=1e-8, atol=1e-10)
    assert np.abs(np.array(own) - np.array(counts)).max() <= 1


def test_a_rank_has_its_nodes_and_one_layer_of_elements(found):
    mesh = mesh_of()
    facets = {tuple(f) for f in np.sort(mesh.boundary_facets, axis=1).tolist()}
    met = set()
    for each in (rank["geometry"] for rank in found):
        assert np.array_equal(each["own"], each["rows"]) and each["touched"]
        assert np.array_equal(each["points"], mesh.points[each["nodes"]])
        assert np.array_equal(each["tets"], mesh.tets[each["elements"]])
        assert np.array_equal(each["volumes"], mesh.volumes[each["elements"]])
        assert np.array_equal(np.isin(mesh.tets, each["own"]).any(axis=1).nonzero()[0], each["elements"])
        met |= {tuple(f) for f in each["facets"].tolist()}
    assert met == facets
    bottom = np.concatenate([rank["geometry"]["bottom"] for rank in found])
    assert np.array_equal(np.sort(bottom), mesh.boundary_nodes(lambda x, y, z: z == 0.0))


def test_errors_are_raised_on_every_rank_alike(found):
    one = found[0]["refused"]
    assert all(each["refused"] == one for each in found)
    arguments = (
        "points", "cells", "density", "out", "backend", "numbers", "facets", "mesh", "mesh", "mesh", "mesh", "density",
    )  # fmt: skip
    for text, argument in zip(one, arguments, strict=True):
        assert f": {argument} must" in text, text


def test_domains_need_ranks():
    with pytest.raises(ValueError, match=r"TetMesh: domains must be None without comm"):
        fem.TetMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 1, 2, 3]], domains=2)
    with pytest.raises(TypeError, match=r"TetMesh: comm must be a communicator"):
        fem.TetMesh.box(2, comm=3)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
@pytest.mark.parametrize("cells, domains", [(12, None), ((9, 4, 14), 13), (2, 3)])
def test_three_meshes_have_the_bits_of_one_rank(mpi, cells, domains, ranks):
    for n_samples, dtype in ((1, None), (8, np.float64), (32, np.float32)):
        case = cells, domains, n_samples, dtype
        want = solved(serial(), *case)
        assert mpi(solved, ranks, *case, limit=600.0)[0] == want
    case = cells, domains, 8
    found = mpi(mountain_steps, ranks, *case, limit=600.0)
    assert digits(found[0]) == digits(mountain_steps(serial(), *case))
