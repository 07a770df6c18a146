"""The page of ten tables is what the records say."""

import re

from benchmarks import bench_cases
from benchmarks.bench_page import CPU, GPU, PAGE, TABLES, page, shown


def without_days(text):
    """The day of a record is that of its last commit, which a packed copy does not know."""
    return re.sub(r"\s+of\s+(\d{4}-\d\d-\d\d|unknown):\s+", " of DAY: ", text)


def test_the_page_is_that_of_the_records():
    assert without_days(page()) == without_days(PAGE.read_text())


def test_it_has_ten_tables_on_two_machines_with_bounds_and_versions():
    text = PAGE.read_text()
    assert len(TABLES) == 10 and {table.machine for table in TABLES} == {CPU, GPU}
    assert re.findall(r"^## (\d+)\.", text, re.MULTILINE) == [str(k) for k in range(1, 11)]
    assert len(re.findall(r"[Bb]ound", text)) >= 10 and text.count("numpy") == 10 and "goal" not in text


def test_pages_of_performance_say_what_is_measured_and_nothing_of_goals():
    for name in ("speed.md", "performance.md", "cases.md"):
        words = re.findall(r"\b(goals?|missed|: met|bars?)\b", PAGE.with_name(name).read_text(), re.IGNORECASE)
        assert words == [], name


def test_numbers_have_three_digits():
    assert [shown(x) for x in (1234.5, 0.0123456, 7, None, float("nan"))] == ["1,234", "0.0123", "7", "-", "-"]


def test_the_page_of_cases_is_that_of_the_records():
    assert bench_cases.page() == bench_cases.PAGE.read_text()


def test_each_case_below_its_bar_says_why_and_no_other_does():
    low = {case.case: bool(case.why) for case in bench_cases.cases() if bench_cases.below(case)}
    low |= {figure.what: bool(figure.why) for figure in bench_cases.figures() if bench_cases.missed(figure)}
    assert low and all(low.values())
    good = [case for case in bench_cases.cases() if not bench_cases.below(case)]
    met = [figure for figure in bench_cases.figures() if not bench_cases.missed(figure)]
    assert [each[0] for each in (*good, *met) if each.why] == []
