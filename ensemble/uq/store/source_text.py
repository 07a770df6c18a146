"""The text of a function's source: without comments, of lambdas alone, or the byte code where there is none."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import io
import textwrap
import tokenize
from types import CodeType
from typing import Any

__all__ = ["code_source", "constant_text", "source_of"]


def source_of(value: Any) -> str:
    """The source text without comments, blank lines and common indentation; the byte code where there is none."""
    if inspect.isfunction(value) and value.__name__ == "<lambda>":
        return lambda_text(value.__code__)
    try:
        text = textwrap.dedent(inspect.getsource(value))
    except (OSError, TypeError):
        return code_text(value.__code__) if hasattr(value, "__code__") else str(value.__qualname__)
    try:
        return without_comments(text)
    except (tokenize.TokenError, SyntaxError):
        return text


def lambda_text(code: CodeType) -> str:
    """The text of a lambda as its tree is written, whatever else its lines hold; the byte code where there is none."""
    with contextlib.suppress(OSError, TypeError, SyntaxError, ValueError):
        lines = inspect.findsource(code)[0]
        found = [tree for tree in lambdas_of("".join(lines)) if tree.lineno == code.co_firstlineno]
        if len(found) > 1:  # of one line
            places = [(line, column) for line, _, column, end in code.co_positions() if line and column and end]
            found = [tree for tree in found if places and all(is_within(tree.body, place) for place in places)]
            found = sorted(found, key=lambda tree: tree.col_offset)[-1:]  # the innermost
        if len(found) == 1:
            return ast.unparse(found[0])
    return code_text(code)


@functools.lru_cache(maxsize=64)
def lambdas_of(text: str) -> tuple[ast.Lambda, ...]:
    """The lambdas of a source text."""
    return tuple(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda))


def is_within(tree: ast.expr, place: tuple[int, int]) -> bool:
    """Whether a line and a column are those of an expression."""
    assert tree.end_lineno is not None and tree.end_col_offset is not None
    return (tree.lineno, tree.col_offset) <= place <= (tree.end_lineno, tree.end_col_offset)


def code_source(code: CodeType) -> str:
    """`source_of` for a code object: that of a function itself, not of one that it wraps."""
    try:
        return without_comments(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, tokenize.TokenError, SyntaxError):
        return code_text(code)


def without_comments(text: str) -> str:
    """`text` without comments, and without the lines and blanks that are empty then."""
    lines = text.splitlines(keepends=True)
    ended: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT:
            lines[row - 1] = lines[row - 1][:column] + "\n"
        if token.type in (tokenize.NEWLINE, tokenize.NL) and row <= len(lines):
            ended.add(row - 1)
    # Lines inside a text that spans several are kept as they are: only their last row ends a line of code.
    kept = [line.rstrip() + "\n" if k in ended else line for k, line in enumerate(lines)]
    return "".join(line for k, line in enumerate(kept) if k not in ended or line.strip())


def code_text(code: CodeType) -> str:
    """The byte code of a function and its constants."""
    constants = [code_text(c) if isinstance(c, CodeType) else constant_text(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def constant_text(value: Any) -> str:
    """The ``repr`` of a constant, of sets in a fixed order."""
    if isinstance(value, (tuple, frozenset)):
        texts = [constant_text(item) for item in value]
        return f"{type(value).__name__}{sorted(texts) if isinstance(value, frozenset) else texts}"
    return repr(value)
