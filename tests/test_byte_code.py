"""The one reader of byte code, compared with what CPython's own modules say about the functions of a large module."""

import ast
import dis
import functools
import inspect
import types
import typing

import pytest

from ensemble import _byte_code


def functions_of(module):
    return [value for value in vars(module).values() if isinstance(value, types.FunctionType)]


CODES = [
    code for module in (ast, inspect, typing, functools) for f in functions_of(module)
    for code in _byte_code.codes_in(f.__code__)
]  # fmt: skip


def test_tables_of_exceptions_are_written_as_they_were_read():
    tables = [code for code in CODES if code.co_exceptiontable]
    assert len(tables) > 20
    for code in tables:
        assert _byte_code.encoded_guards(_byte_code.guards_of(code)) == code.co_exceptiontable


def test_the_variables_that_are_stored_outside_are_those_of_the_disassembler():
    def expected(code):
        stored = {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_DEREF"}
        return stored & set(code.co_freevars)

    found = [_byte_code.stored_outside(code) for code in CODES]
    assert any(found) and found == [expected(code) for code in CODES]


def test_a_long_operand_is_written_in_several_instructions():
    written = _byte_code.encoded("LOAD_NAME", 300)
    assert list(written[:4]) == [dis.opmap["EXTENDED_ARG"], 1, dis.opmap["LOAD_NAME"], 44]


def test_names_and_variables_are_those_of_inner_functions_too():
    def outer(x):
        def inner():
            return math.sin(x).real  # noqa: F821

        return inner, len

    assert list(_byte_code.names_in(outer.__code__)) == ["len", "math", "sin", "real"]
    assert list(_byte_code.variables_in(outer.__code__)) == ["len", "math"]


def test_values_of_enclosing_functions_leave_out_what_has_none_yet():
    def made():
        first = 1

        def inner():
            return first, later

        early = _byte_code.enclosed(inner)
        later = 2
        return early, _byte_code.enclosed(inner)

    assert made() == ({"first": 1}, {"first": 1, "later": 2})


@pytest.mark.parametrize("statement, assigns, raised", [("x[0] = 1", True, False), ("raise x", False, True)])
def test_the_instruction_at_a_place_is_told(statement, assigns, raised):
    code = compile(statement, "", "exec")
    places = [step.offset for step in dis.get_instructions(code)]
    assert any(_byte_code.assigns_entry(code, place) for place in places) == assigns
    assert any(_byte_code.raises(code, place) for place in places) == raised
