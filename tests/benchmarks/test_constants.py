"""Constants that were chosen for speed name the benchmark by which they are measured again."""

import ast
import re
from pathlib import Path

import ensemble
from benchmarks.__main__ import programs

ROOT = Path(ensemble.__file__).parent

OF_SPEED = re.compile(
    r"prefetch|faster|slower|quicker|\bpays?\b|worth its|(one|several) threads?\b|threads (share|work)|"
    r"takes? (as long|longer|less time)|\bcosts? (a|more|of)\b|measured"
)
"""How the text of such a constant tells that another number would give the same results in more time."""

NAMED = re.compile(r"`benchmarks ([a-z0-9-]+)`")

NOT_OF_SPEED = {"SEED", "SHARED_BYTES", "REACH"}
"""A seed, what a block has, and a range of integration."""


def constants():
    """Each constant of a module that has a number in it: where it stands, its name and its text."""
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text()
        lines, body = source.splitlines(), ast.parse(source).body
        for node, after in zip(body, [*body[1:], None]):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            if not re.fullmatch(r"[A-Z0-9_, ()]+", name) or not re.search(r"\d", ast.unparse(node.value)):
                continue
            says = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            beside = " ".join(line.partition("#")[2] for line in lines[node.lineno - 1 : node.end_lineno])
            yield f"{path.relative_to(ROOT)}:{node.lineno} {name}", name, f"{says} {beside}"


def test_constants_of_speed_name_a_benchmark_that_there_is():
    known, wrong, found = programs(), [], 0
    for place, name, text in constants():
        named = NAMED.findall(text)
        found += bool(named)
        wrong += [f"{place}: no benchmark {each}" for each in named if each not in known]
        if OF_SPEED.search(text) and not named and name not in NOT_OF_SPEED:
            wrong.append(f"{place}: which `benchmarks NAME` measures it?")
    assert wrong == [] and found > 60
