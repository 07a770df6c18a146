"""Files of the public programs: as they write them, there and back, and damaged."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensemble.apps.gbees import (
    GaussianFile,
    positions,
    read_binary,
    read_gaussian,
    read_text,
    write_binary,
    write_gaussian,
    write_text,
)
from tests.apps.gbees.distributions import gaussian_cells, random_cells, turn

FORMATS = {"text": (write_text, read_text, 1e-9), "binary": (write_binary, read_binary, 0.0)}


@pytest.mark.parametrize("write, read, digits", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("rotation", [None, turn(0.3)], ids=["straight", "turned"])
def test_there_and_back(write, read, digits, rotation, tmp_path):
    cells = gaussian_cells([1.0, -2.0], np.eye(2), [0.3, 0.4], rotation=rotation, reach=3.0, time=0.25)
    write(tmp_path / "f", cells)
    points = read(tmp_path / "f")
    assert points.time == 0.25
    np.testing.assert_allclose(points.probabilities, cells.probabilities, rtol=digits)
    np.testing.assert_allclose(points.x, positions(cells), rtol=digits, atol=digits)
    back = points.cells(cells.origin, cells.widths, rotation)
    np.testing.assert_array_equal(back.indices, cells.indices)
    assert back.time == 0.25


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 4))
def test_binary_there_and_back_is_to_the_bit(seed, n, tmp_path_factory):
    cells = random_cells(np.random.default_rng(seed), n, 9)
    path = tmp_path_factory.mktemp("binary") / "f"
    write_binary(path, cells)
    points = read_binary(path, n)
    np.testing.assert_array_equal(points.probabilities, cells.probabilities)
    np.testing.assert_array_equal(points.x, positions(cells))


def test_the_text_is_what_the_public_program_writes(tmp_path):
    cells = gaussian_cells([-11.5], [[1.0]], [0.5], reach=0.5, time=1.0 / 3.0)
    write_text(tmp_path / "f", cells)
    p = cells.probabilities
    lines = [f"{0.333333}", *(f"{q:.10e} {x:.10e}" for q, x in zip(p, (-12.0, -11.5, -11.0), strict=True))]
    assert (tmp_path / "f").read_text().splitlines() == lines


def test_the_binary_is_what_the_public_program_writes(tmp_path):
    cells = gaussian_cells([2.0], [[1.0]], [0.5], reach=0.5, time=0.5)
    write_binary(tmp_path / "f", cells)
    expected = struct.pack("<dI", 0.5, 3)
    for q, x in zip(cells.probabilities, (1.5, 2.0, 2.5), strict=True):
        expected += struct.pack("<dd", q, x)
    assert (tmp_path / "f").read_bytes() == expected


def test_a_distribution_without_cells(tmp_path):
    (tmp_path / "t").write_text("0.5\n")
    (tmp_path / "b").write_bytes(struct.pack("<dI", 0.5, 0))
    for points in (read_text(tmp_path / "t"), read_binary(tmp_path / "b")):
        assert points.time == 0.5 and points.probabilities.shape == (0,)


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", "the file must start with a time; got an empty file"),
        ("0.5 1.0\n", "line 1: must hold 1 number; got 2"),
        ("0.5\n1e-3 2.0\n1e-3\n", r"line 3: must hold 2 numbers; got 1. Is the file cut off\?"),
        ("0.5\n1e-3 2.0\n1e-3 two\n", "line 3: must hold numbers; got '1e-3 two'"),
        ("0.5\n1e-3\n", "line 2: must hold a probability and coordinates"),
    ],
)
def test_damaged_text_is_refused(text, complaint, tmp_path):
    (tmp_path / "f").write_text(text)
    with pytest.raises(ValueError, match=complaint):
        read_text(tmp_path / "f")


@pytest.mark.parametrize("cut", [5, 11, 12 + 8, 12 + 3 * 16 - 1, 12 + 3 * 16 + 8])
def test_damaged_binary_is_refused(cut, tmp_path):
    write_binary(tmp_path / "f", gaussian_cells([2.0], [[1.0]], [0.5], reach=0.5))
    (tmp_path / "f").write_bytes(((tmp_path / "f").read_bytes() + bytes(8))[:cut])
    with pytest.raises(ValueError, match=r"read_binary: .*must h"):
        read_binary(tmp_path / "f")


def test_a_binary_of_another_dimension_is_refused(tmp_path):
    write_binary(tmp_path / "f", gaussian_cells([2.0], [[1.0]], [0.5], reach=0.5))
    with pytest.raises(ValueError, match="must hold 3 rows of 2 dimensions after the header; got 48 bytes"):
        read_binary(tmp_path / "f", 2)


def test_points_of_another_grid_are_refused(tmp_path):
    write_binary(tmp_path / "f", gaussian_cells([2.0], [[1.0]], [0.5], reach=0.5))
    with pytest.raises(ValueError, match=r"origin and widths must be those of the grid .* 0.25 cells off a centre"):
        read_binary(tmp_path / "f").cells([2.125], [0.5])
    with pytest.raises(ValueError, match=r"origin must have shape \(1,\)"):
        read_binary(tmp_path / "f").cells([2.0, 1.0], [0.5])


def test_a_text_file_that_cannot_be_completed_leaves_the_old_one(tmp_path, monkeypatch):
    cells = gaussian_cells([2.0], [[1.0]], [0.5], reach=0.5)
    write_text(tmp_path / "f", cells)
    before = (tmp_path / "f").read_bytes()

    def refuse(file, rows, fmt):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savetxt", refuse)
    with pytest.raises(OSError, match="No space"):
        write_text(tmp_path / "f", cells)
    assert (tmp_path / "f").read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["f"]


LORENZ = """x (LU) y (LU) z (LU)
-11.50 -10.00 9.5000

Covariance(x, y, z)
1.000000000000000000 0.000000000000000000 0.000000000000000000
0.000000000000000000 1.000000000000000000 0.000000000000000000
0.000000000000000000 0.000000000000000000 1.000000000000000000

T (TU)
1"""


def test_a_measurement_file_as_the_public_programs_have_it(tmp_path):
    (tmp_path / "f").write_text(LORENZ)
    found = read_gaussian(tmp_path / "f")
    np.testing.assert_array_equal(found.mean, [-11.5, -10.0, 9.5])
    np.testing.assert_array_equal(found.covariance, np.eye(3))
    assert found.span == 1.0 and found.labels == ("x (LU)", "y (LU)", "z (LU)") and found.time_label == "T (TU)"


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 6))
def test_measurement_files_there_and_back(seed, n, tmp_path_factory):
    rng = np.random.default_rng(seed)
    content = GaussianFile(rng.standard_normal(n), rng.standard_normal((n, n)), float(rng.random()))
    path = tmp_path_factory.mktemp("gaussian") / "f"
    write_gaussian(path, content)
    back = read_gaussian(path)
    np.testing.assert_array_equal(back.mean, content.mean)
    np.testing.assert_array_equal(back.covariance, content.covariance)
    assert back.span == content.span and len(back.labels) == n


@pytest.mark.parametrize(
    "change, complaint",
    [
        (lambda t: "x\n", "must start with labels and values; got 1 lines"),
        (lambda t: t[: t.index("T (TU)")], "must have 10 lines for 3 values; got 8. Is the file cut off"),
        (lambda t: t.replace("0.000000000000000000 1.0", "1.0"), "line 6: must hold 3 numbers; got 2"),
        (lambda t: t.replace("-10.00", "ten"), "line 2: must hold numbers; got '-11.50 ten 9.5000'"),
        (lambda t: t + " 2", "line 10: must hold 1 number; got 2"),
    ],
)
def test_damaged_measurement_files_are_refused(change, complaint, tmp_path):
    (tmp_path / "f").write_text(change(LORENZ))
    with pytest.raises(ValueError, match=complaint):
        read_gaussian(tmp_path / "f")
