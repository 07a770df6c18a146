"""How many annotations of the public functions, methods and properties tell a user's type checker nothing.

`python -m tests.public_types` lists them: annotations that are missing, or in which `Any` stands, or its alias `Array`.
What a callable of the user takes and returns does not count.
"""

import importlib
import inspect
import re
import types

from tests.public_api import packages

UNTYPED = re.compile(r"\b(?:Any|Array)\b")
"""`ensemble._typing.Array` is `Any`: arrays of any library have no common type."""


def functions():
    """Public functions, and methods, properties and operators of public classes, by name, each once."""
    seen = set()
    for package in packages():
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            if not inspect.isclass(thing):
                found = [(name, thing)]
            else:
                classes = [each for each in thing.__mro__ if each.__module__.startswith("ensemble")]
                members = {key: value for each in reversed(classes) for key, value in vars(each).items()}
                found = [(f"{name}.{key}", members[key]) for key in sorted(members) if is_public(key)]
            for path, value in found:
                function = inspect.unwrap(plain(value)) if callable(plain(value)) else None
                if isinstance(function, types.FunctionType) and function not in seen:
                    seen.add(function)
                    yield f"{package}.{path}", function


def is_public(name):
    return not name.startswith("_") or (name.startswith("__") and name not in ("__getattr__", "__array_function__"))


def plain(value):
    """The function of a method or property."""
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", getattr(value, "func", value)) if not isinstance(value, type) else value


def untyped():
    """(function, argument or "return", annotation) of each annotation that has `Any`, or of one that is missing."""
    for path, function in functions():
        made = function.__code__.co_filename == "<string>" and function.__name__ != "__init__"  # by `dataclass`
        if made or not function.__module__.startswith("ensemble"):
            continue
        annotations = function.__annotations__
        parameters = list(inspect.signature(function).parameters)
        for name in [*(p for p in parameters if p not in ("self", "cls")), "return"]:
            text = str(annotations.get(name, "Any"))
            if UNTYPED.search(re.sub(r"Callable\[(?:\[[^\]]*\]|[^\[\]])*\]", "", text)):
                yield path, name, text


if __name__ == "__main__":
    found = list(untyped())
    for path, name, text in found:
        print(f"{path}: {name}: {text}")
    returns = sum(name == "return" for _, name, _ in found)
    print(f"{returns} results and {len(found) - returns} arguments")
