"""The public names with their signatures, as lines of text; `python -m tests.public_api` writes them to the table."""

import enum
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import ensemble

TABLE = Path(__file__).with_suffix(".txt")


def packages():
    """Every package that has a public list and no underscore in its path."""
    found = pkgutil.walk_packages(ensemble.__path__, "ensemble.")
    names = sorted(m.name for m in found if m.ispkg and "._" not in m.name)
    return [name for name in ["ensemble", *names] if "__all__" in vars(importlib.import_module(name))]


def signature(thing):
    """The signature without annotations and private fields; nothing where Python gives none, as for enumerations."""
    if inspect.isclass(thing) and issubclass(thing, (enum.Enum, Exception)):
        return ""
    found = inspect.signature(thing)
    shown = [p.replace(annotation=p.empty) for p in found.parameters.values() if not re.match("_[a-z]", p.name)]
    text = str(found.replace(parameters=shown, return_annotation=found.empty))
    return re.sub(r"<(?:function |class ')?([^\s'>]*)[^>]*>", r"\1", text)


def lines():
    """One line for each public name, and for each public method and property of a public class at its first name."""
    seen = set()
    for package in packages():
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            path = f"{package}.{name}"
            yield path + (signature(thing) if callable(thing) else "")
            if inspect.isclass(thing) and thing not in seen:
                seen.add(thing)
                own = {n for c in thing.__mro__ if c.__module__.startswith("ensemble") for n in vars(c)}
                for member in sorted(n for n in own if not n.startswith("_")):
                    if not hasattr(thing, member):  # an attribute of samples, which an ensemble refuses
                        continue
                    value = inspect.getattr_static(thing, member)
                    is_method = inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod))
                    yield f"{path}.{member}" + (signature(getattr(thing, member)) if is_method else "")


if __name__ == "__main__":
    TABLE.write_text("".join(f"{line}\n" for line in lines()))
