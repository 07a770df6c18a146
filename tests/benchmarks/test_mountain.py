"""The matrices of a time step that the finite-element benchmarks count."""

from benchmarks.mountain import NINE_OF_TEN, STEP_FORMS, mountain_mesh, step_fields
from ensemble.apps import fem


def test_the_eight_matrices_have_eight_sets_of_coefficients():
    """Equal forms of equal fields are assembled once: a sum of eight must be of eight."""
    mesh = mountain_mesh((2, 2, 2))
    made = fem.assemble(mesh, *STEP_FORMS.values(), check=False, **step_fields(mesh))
    assert len({matrix.values.tobytes() for matrix in made}) == len(STEP_FORMS) == 8 and len(NINE_OF_TEN) == 7
