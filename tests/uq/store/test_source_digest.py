"""The digest changes where the model's own source or constants do, and only there."""

import datetime
import functools
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
import scipy.sparse
from scipy import interpolate, spatial, stats

import ensemble as en
from ensemble.linalg import CrsMatrix
from ensemble.uq import source_digest

HELPER = """
FACTOR = 2.0

def stretch(x):
    return FACTOR * x

def bend(x):
    return x / FACTOR

def unused(x):
    return x
"""

MODEL = '''
import math
import numpy as np
import mesh_helper
from mesh_helper import stretch as pull

GRAVITY = 9.81
NODES = np.arange(4.0)
OPTIONS = {"order": [1, 2], "name": "lu"}

class Material:
    """Linear."""

    def __init__(self, E):
        self.E = E

    def stress(self, strain):
        return self.E * strain

STEEL = Material(210.0)

SPAN = 3.0
HEIGHT = 5.0

def area(x, width=2.0, span=SPAN, *, height=HEIGHT):
    return width * x * span

def outer():
    shift = 1.5

    def inner(x):
        return x + shift

    return inner

shifted = outer()

def model(x):
    # a comment
    text = """two
    lines"""
    y = area(x.E) + GRAVITY * NODES.sum() + OPTIONS["order"][0]

    return {"y": np.sin(y) + mesh_helper.bend(y) + STEEL.stress(y) + shifted(y), "z": math.cos(y), "t": pull(text)}

def other(x):
    return x.E
'''


def load(folder, name, text):
    """`text` as an imported module."""
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def digest(tmp_path_factory, monkeypatch):
    """The digest of `model` in the two modules after replacements of their text."""

    def digest(*replacements, name="model"):
        folder = tmp_path_factory.mktemp("source")
        texts = [HELPER, MODEL]
        for before, after in replacements:
            assert sum(before in text for text in texts) == 1
            texts = [text.replace(before, after) for text in texts]
        for module in ("mesh_helper", "user_model"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        load(folder, "mesh_helper", texts[0])
        return source_digest(getattr(load(folder, "user_model", texts[1]), name))

    return digest


@pytest.mark.parametrize(
    "before, after",
    [
        ("np.sin(y)", "np.cos(y)"),
        ('"""two\n    lines"""', '"""two\n    more"""'),
        ('"""two\n    lines"""', '"""two\n\n    lines"""'),
        ("return width * x", "return width + x"),
        ("SPAN = 3.0", "SPAN = 4.0"),
        ("HEIGHT = 5.0", "HEIGHT = 6.0"),
        ("return x / FACTOR", "return x // FACTOR"),
        ("width=2.0", "width=3.0"),
        ("GRAVITY = 9.81", "GRAVITY = 9.82"),
        ("np.arange(4.0)", "np.arange(5.0)"),
        ("np.arange(4.0)", "np.arange(4.0, dtype=np.float32)"),
        ('"order": [1, 2]', '"order": [1, 3]'),
        ("self.E * strain", "self.E / strain"),
        ("Material(210.0)", "Material(200.0)"),
        ("shift = 1.5", "shift = 2.5"),
        ("return x + shift", "return x - shift"),
        ("return FACTOR * x", "return FACTOR + x"),
        ("FACTOR = 2.0", "FACTOR = 2.5"),
    ],
)
def test_the_digest_changes_with_what_the_model_uses(digest, before, after):
    assert digest((before, after)) != digest()


@pytest.mark.parametrize(
    "before, after",
    [
        ("    # a comment\n", ""),
        ("# a comment", "# another"),
        ('["order"][0]\n\n', '["order"][0]\n\n\n\n'),
        ('["order"][0]\n', '["order"][0]  # why\n'),
        ("import math\n", "import math\nimport json\n"),
        ("def unused(x):\n    return x", "def unused(x):\n    return 2 * x"),
        ("return x.E", "return x.nu"),
    ],
)
def test_the_digest_stays_where_nothing_that_matters_changes(digest, before, after):
    assert digest((before, after)) == digest()


def test_the_digest_is_that_of_another_process(tmp_path, digest):
    (tmp_path / "mesh_helper.py").write_text(HELPER)
    (tmp_path / "user_model.py").write_text(MODEL)
    code = "from user_model import model; from ensemble.uq import source_digest; print(source_digest(model))"
    root = Path(__file__).parents[3]
    environment = {"PYTHONPATH": f"{tmp_path}:{root}", "PYTHONHASHSEED": "31", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == digest()


class Solver:
    """A model that is an object."""

    def __init__(self, order):
        self.order = order

    def __call__(self, x):
        return x**self.order

    def run(self, x):
        return x * self.order


def scaled(x, factor):
    return factor * x


def traced(function):
    @functools.wraps(function)
    def wrapper(x):
        return function(x)

    return wrapper


@traced
def decorated(x):
    return x + 1


def recursive(x):
    return recursive(x - 1) if x else {1, 2, "a"}


@pytest.mark.parametrize(
    "one, other",
    [
        (Solver(2), Solver(3)),
        (Solver(2).run, Solver(3).run),
        (Solver(2), Solver(2).run),
        (functools.partial(scaled, factor=1.0), functools.partial(scaled, factor=2.0)),
        (functools.partial(scaled, factor=np.ones(2)), functools.partial(scaled, factor=np.ones(3))),
        (decorated, traced(scaled)),
        (
            lambda x: x + 1,
            lambda x: x + 2,
        ),
        (np.sin, np.cos),
        (recursive, decorated),
        (eval("lambda x: x + 1"), eval("lambda x: x + 2")),
    ],
)
def test_all_kinds_of_models_are_told_apart(one, other):
    assert source_digest(one) == source_digest(one)
    assert source_digest(one) != source_digest(other)


def test_a_method_of_an_equal_object_is_the_same_model():
    assert source_digest(Solver(2).run) == source_digest(Solver(2).run)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match=r"^source_digest: model must be callable; got a float"):
        source_digest(3.0)


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return self.factor * x


def scaling(factor):
    """A decorator that sets ``__wrapped__``."""

    def decorate(function):
        @functools.wraps(function)
        def scaled(x):
            return factor * function(x)

        return scaled

    return decorate


def plain(x):
    return x


def held(factor):
    return lambda x: factor * x


def same(law):
    return law


class Chosen:
    """Holds two functions, and one of them again."""

    def __init__(self, law):
        self.laws = plain, recursive
        self.law = law

    def __call__(self, x):
        return self.law(x)


@pytest.mark.parametrize(
    "made",
    [
        Slotted,
        lambda factor: held(scipy.sparse.csr_array([[factor, 0.0], [1.0, 0.0]])),
        lambda factor: held(scipy.sparse.coo_array([[factor, 0.0], [1.0, 0.0]])),
        lambda factor: held(scipy.sparse.dia_array([[factor, 0.0], [1.0, 0.0]])),
        lambda factor: scaling(factor)(plain),
        lambda factor: held(en.Ensemble(np.array([1.0, factor]))),
        lambda factor: held(np.ma.MaskedArray([1.0, 2.0], mask=[False, factor > 2.0])),
        lambda factor: held(np.array([1.0, factor], dtype=object)),
        lambda factor: held(np.array([(factor, None)], dtype=[("a", object), ("b", object)])),
        lambda factor: held(pandas.Series([0.0] * 100 + [factor] + [0.0] * 100)),
        lambda factor: held(pandas.DataFrame({"a": np.ones(200)}, index=np.arange(200.0) * factor)),
        lambda factor: held(pandas.Timestamp(2020, 1, int(factor))),
        lambda factor: held(pandas.CategoricalDtype(["a", str(factor)])),
        lambda factor: Chosen(plain if factor > 2.0 else recursive),
    ],
    ids=[
        "slots",
        "CSR",
        "COO",
        "DIA",
        "a decorator's variable",
        "an enclosed Ensemble",
        "a mask",
        "objects",
        "fields of objects",
        "a long series",
        "the index of a table",
        "a time",
        "categories",
        "one of two functions",
    ],
)
def test_values_that_a_model_holds_count(made):
    assert source_digest(made(2.0)) == source_digest(made(2.0)) != source_digest(made(3.0))


def using(value):
    """A model that has `value` in its closure."""

    def model(x):
        return x.a * value

    return model


def of_matrix(number):
    return CrsMatrix.from_scipy(scipy.sparse.csr_matrix(np.array([[1.0, number], [0.0, 2.0]])))


@pytest.mark.parametrize(
    "make",
    [
        lambda s: stats.lognorm(s, scale=3.0),
        lambda s: stats.norm(loc=s),
        lambda s: stats.rv_discrete(values=([1, 2], [s, 1.0 - s])),
        lambda s: stats.multivariate_normal([0.0, s]),
        lambda s: stats.multivariate_normal([0.0, 0.0], [[1.0, s], [s, 1.0]]),
        lambda s: stats.gaussian_kde([1.0, 2.0, s]),
        lambda s: interpolate.CubicSpline([0.0, 1.0, 2.0], [s, 1.0, 2.0]),
        lambda s: interpolate.RegularGridInterpolator(([0.0, 1.0],), np.array([s, 1.0])),
        lambda s: spatial.cKDTree([[0.0, s]]),
        lambda s: np.polynomial.Polynomial([s, 1.0]),
        lambda s: en.Inputs(a=stats.norm(s)),
        lambda s: en.uq.Sobol(replicates=int(10 * s)),
        lambda s: datetime.timedelta(seconds=s),
        of_matrix,
    ],
)
def test_objects_of_packages_are_seen(make):
    assert source_digest(using(make(0.2))) == source_digest(using(make(0.2)))
    assert source_digest(using(make(0.2))) != source_digest(using(make(0.3)))


def test_a_value_that_is_set_on_a_class_counts():
    class Settings:
        slope = 2.0
        cache: dict = {}  # noqa: RUF012

    class Derived(Settings):
        pass

    def model(x):
        return Derived.slope * x.a

    first = source_digest(model)
    Settings.cache["x"] = 1.0
    assert source_digest(model) == first
    Settings.slope = 3.0
    assert source_digest(model) != first


def test_lambdas_are_told_apart_wherever_they_stand():
    """Several on one line, over several lines behind an operator, inside of others; blanks do not count."""
    pair = [lambda x: x + 1.0, lambda x: x + 2.0, lambda x:  x + 1.0]  # fmt: skip
    assert source_digest(pair[0]) == source_digest(pair[2]) != source_digest(pair[1])
    long = [
        same(law=
            lambda x: x
            + 1.0),
        same(law=
            lambda x: x
            + 2.0),
    ]  # fmt: skip
    assert source_digest(long[0]) == source_digest(pair[0]) and source_digest(long[1]) == source_digest(pair[1])
    inner = (lambda y: lambda z: z + y)(1.0), (lambda y: lambda z: z - y)(1.0)
    assert source_digest(inner[0]) != source_digest(inner[1])
    assert source_digest(eval("lambda x: x in {'a', 'b', 'c'}")) == source_digest(
        eval("lambda x: x in {'c', 'b', 'a'}")
    )


def test_equal_objects_are_told_from_one_object():
    """A change of the one is a change of the other only where they are the same."""
    one, other = [1.0], [1.0]
    assert source_digest(functools.partial(scaled, one, one)) != source_digest(functools.partial(scaled, one, other))


def test_a_global_with_the_name_of_an_attribute_does_not_count():
    """As the result of a study that is called like an input."""
    space = {}
    exec("def model(x):\n    return {'y': x.a + offset}\noffset = 1.0\n", space)
    first = source_digest(space["model"])
    space["a"] = object()
    assert source_digest(space["model"]) == first
    space["offset"] = 2.0
    assert source_digest(space["model"]) != first


def test_tuples_that_share_parts_are_visited_once():
    held = (1.5,)
    for _ in range(60):
        held = (held, held)
    again = (1.5,)
    for _ in range(60):
        again = (again, again)
    assert source_digest(functools.partial(scaled, held)) == source_digest(functools.partial(scaled, again))
    assert source_digest(functools.partial(scaled, held)) != source_digest(functools.partial(scaled, held[0]))
