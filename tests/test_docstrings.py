"""The first sentence of a public function's docstring begins with a verb, and says what comes out."""

import importlib
import inspect

from tests.public_api import packages

VERBS = frozenset((
    "Add", "Assemble", "Build", "Call", "Choose", "Compare", "Compute", "Convert", "Count", "Decorate", "Define",
    "Declare", "Divide", "Draw", "Estimate", "Evaluate", "Expand", "Filter", "Find", "Fit", "Group", "Integrate",
    "Invert", "Load", "Make", "Merge", "Number", "Open", "Plot", "Predict", "Print", "Put", "Read", "Record", "Remove",
    "Repeat", "Replace", "Return", "Run", "Save", "Scale", "Serve", "Set", "Smooth", "Solve", "Stack", "Sum", "Take",
    "Tell", "Transform", "Turn", "Update", "Wait", "Write",
))  # fmt: skip
"""Those that sentences begin with: imperatives, as in SciPy. Add one that says what a function does."""


def public_functions():
    found = {}
    for package in packages():
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            is_function = inspect.isroutine(inspect.unwrap(thing)) or hasattr(thing, "reference")
            if is_function and not inspect.isclass(thing):
                found.setdefault(id(thing), (f"{package}.{name}", thing))
    return sorted(found.values())


def test_the_first_word_is_a_verb():
    functions = public_functions()
    assert len(functions) > 150
    assert [name for name, f in functions if (inspect.getdoc(f) or "").split(" ")[0] not in VERBS] == []
