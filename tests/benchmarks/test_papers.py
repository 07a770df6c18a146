"""The pages of the five papers: published numbers agree with each other, pages with records, gaps with reasons."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks.bench_paper import MODULES, page_of
from benchmarks.common import of_device
from benchmarks.papers import (
    NotRun,
    Record,
    Stored,
    Table,
    analyses,
    atmosphere,
    ensembles,
    found,
    gbees,
    kalman,
    ours_over,
    times_faster,
)
from benchmarks.papers.page import PAGES, cells, markdown, printed
from benchmarks.tensor_stages import SOURCE

README = PAGES.parents[1] / "README.md"


@pytest.fixture(scope="module")
def stored() -> Stored:
    return Stored()


def test_published_times_and_the_published_gains_over_them_agree() -> None:
    """Each table of a paper has a column that follows from the others: a digit typed wrongly would show."""
    for k in range(2):
        assert sum(row[k] or 0.0 for row in atmosphere.CONSTRUCTION.values()) == pytest.approx(
            atmosphere.CONSTRUCTION_TOTAL[k], abs=0.02
        )
    tables = {3: atmosphere.VALUES, 4: atmosphere.FUNCTIONS, 6: atmosphere.ASSEMBLY, 8: atmosphere.MATRICES}
    for number, times in tables.items():
        for (cpu, device, *_), gain in zip(times.values(), atmosphere.GAINS[number].values(), strict=True):
            assert cpu / device == pytest.approx(gain, rel=1e-3)
    for seconds, gain in atmosphere.CONFIGURATIONS.values():
        assert atmosphere.CONFIGURATIONS["CPU only"][0] / seconds == pytest.approx(gain, abs=0.005)
    parts = {name: values for name, values in atmosphere.STEP_SECONDS.items() if name != "step"}
    for k, total in enumerate(atmosphere.STEP_SECONDS["step"]):
        assert sum(values[k] for values in parts.values()) == pytest.approx(total, abs=0.005)
    for runs in (gbees.LORENZ63, gbees.LORENZ96_RUNS):
        core = runs["CPU-optimized: Apple M2 MAX"][0]
        for time, _, gain in runs.values():
            assert core / time == pytest.approx(gain, rel=0.02)


def test_bounds_of_sparse_products_follow_from_the_published_bandwidth() -> None:
    for name, numbers in ensembles.PRODUCTS.items():
        bandwidth, _, high, low, _, high_many, low_many = numbers
        got = (*ensembles.bounds(bandwidth, "scalar"), *ensembles.bounds(bandwidth, "ensemble"))
        assert got == pytest.approx((high, low, high_many, low_many), abs=0.06), name


def test_gains_of_a_device_over_one_and_all_threads_agree_where_they_are_of_one_run() -> None:
    """S_GM = S_GS / S_MC (eq. 11) in tables 2, and 5 for the larger sizes; the paper's table 4 mixes columns."""
    for row in (*analyses.STATIC[1:], *analyses.OPTIMISED[3:]):
        _, s_mc, *gains = row
        assert [gains[0] / s_mc, gains[1] / s_mc] == pytest.approx(gains[2:], rel=0.03)


@pytest.mark.parametrize("number", MODULES)
def test_a_page_is_what_the_command_writes_from_the_records(number: str, stored: Stored) -> None:
    """Else run ``python -m benchmarks paper all --from-records --page``."""
    assert (PAGES / f"{number}.md").read_text() == markdown(page_of(number, stored), stored)


@pytest.mark.parametrize("number", MODULES)
def test_every_row_has_a_figure_of_ours_or_a_reason(number: str, stored: Stored) -> None:
    for table in page_of(number, stored).tables:
        headings, texts, reasons = cells(table)
        for row in texts:
            assert len(row) == len(headings)
            assert all(text in reasons for line in row for text in re.findall(r"not run \((\w)\)", line))
        assert all(len(why) > 10 for why in reasons.values()), table.name


@pytest.mark.parametrize("number", MODULES)
def test_a_paper_without_any_record_prints_and_says_in_every_table_what_is_missing(number: str) -> None:
    class Empty(Stored):
        def content(self, record: Record) -> None:
            return None

    made = page_of(number, Empty())
    assert printed(made, Empty())
    for table in made.tables:
        assert cells(table)[2], table.name


def test_a_row_that_two_entries_answer_is_an_error_and_one_that_none_answers_says_so() -> None:
    twice = Stored(seen={"r": {"rows": [{"a": 1, "ms": 2.0}, {"a": 1, "ms": 3.0}]}})
    record = Record("r", ("x",))
    with pytest.raises(ValueError, match="2 rows"):
        found(twice, record, "ms", a=1)
    assert found(twice, record, "ms", a=2) == NotRun("record r has no such row")
    assert found(Stored(seen={"r": None}), record, "ms") == NotRun("no record r yet")
    assert times_faster({}, 4.0, 2.0)["published / ours"] == 2.0
    assert ours_over({}, 4.0, 2.0)["ours / published"] == 0.5
    assert times_faster({}, 4.0, NotRun("x"))["published / ours"] == ""


@pytest.mark.parametrize("number", MODULES)
def test_each_page_says_when_it_was_read_against_its_paper_and_what_remains(number: str) -> None:
    last = (PAGES / f"{number}.md").read_text().rstrip().rpartition("\n\n")[2]
    assert re.match(r"Read against the paper on \d{4}-\d\d-\d\d: ", last)
    assert "What remains disputed: " in " ".join(last.split())


@pytest.mark.parametrize("number", MODULES)
def test_all_numbers_of_a_device_on_a_page_are_of_one_kind_of_device(number: str, stored: Stored) -> None:
    contents = [stored.content(record) or {} for table in page_of(number, stored).tables for record in table.records]
    devices = {content.get("device", (content.get("machine") or {}).get("device")) for content in contents}
    assert len(devices - {None}) <= 1


def test_published_numbers_stand_as_they_are_printed_and_ratios_with_four_digits() -> None:
    rows = [{"published, ms": 12641.197, "ours, ms": 12641.197, "published / ours": 1.23456}]
    assert cells(Table("t", "", "", rows))[1] == [["12,641.197", "12,641", "1.235"]]


def test_a_solve_is_its_iterations_times_what_one_takes() -> None:
    """Figure 11 of paper 004; the record has the microseconds of an iteration."""
    rows = [{"edge": 32, "samples": 8, "ranks": r, "iterations": 8 * r, "us": 1000.0 * r} for r in (1, 2)]
    got = ensembles._weak(Stored(seen={ensembles.WEAK.name: {"rows": rows}}))
    assert [row["solve, ms"] for row in got] == [8.0, 32.0]
    assert got[1]["solve over one rank"] == 4.0 and got[1]["an iteration over one rank"] == 2.0


def test_a_ranking_holds_where_it_does_at_every_length() -> None:
    times = dict(zip(kalman.SCANS, (9.0, 3.0, 1.0, 1.0, 2.0), strict=True))
    rows = [{"steps": T, "scan": scan, "PKF": ms, "PRTS": 2 * ms, "PTFS": 3 * ms}
            for T in kalman.LENGTHS for scan, ms in times.items()]  # fmt: skip
    first = {"Ladner-Fischer", "Sengupta A"}
    assert kalman._are(rows, kalman.LENGTHS, first) and kalman._are(rows, kalman.LENGTHS, {"Hillis-Steele"}, last=True)
    assert not kalman._are(rows, kalman.LENGTHS, {"Sengupta A", "Sengupta B"})
    assert kalman._order_of_methods(rows)["agrees"] == "yes"
    rows[2]["PKF"] = 2.5  # Ladner and Fischer's scan at the first length
    assert not kalman._are(rows, kalman.LENGTHS, first) and kalman._are(rows, kalman.LENGTHS[1:], first)


def test_the_first_sentence_of_the_readme_has_the_prices_of_the_records(stored: Stored) -> None:
    words = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}
    said = re.search(r"price of about (\w+) on a processor, of (\w+) on a GPU", README.read_text().replace("\n", " "))
    one, many = (next(row for row in stored.rows(ensembles.COST) if row["n_samples"] == s) for s in (1, 32))
    phases = ("assembly ms", "setup ms", "solve ms")
    price = 32.0 * sum(many[phase] for phase in phases) / sum(one[phase] for phase in phases)
    on_device = 32.0 / found(stored, ensembles.SOLVES, "x one stored", run="stored", samples=32)
    assert said is not None and said.groups() == (words[round(price)], words[round(on_device)])


def test_records_of_finite_elements_are_named_by_the_device() -> None:
    assert [of_device("forms", name) for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3")] == [
        "forms-h200",
        "forms-cuda",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("stage", range(3))
def test_the_stages_of_a_published_kernel_give_its_sums(stage: int) -> None:
    """On the emulated device; 300 elements, which are no multiple of a block."""
    from tests.cuda_on_cpu import Module

    rng = np.random.default_rng(1)
    n, points = 300, 11
    a, b = (rng.standard_normal((points, 4, 3, n, 1)) for _ in range(2))
    tensor, weights = rng.standard_normal((points, 3, 3, n, 1)), rng.standard_normal((points, n, 1))
    out, sizes = np.zeros((16, n, 1)), tuple(np.int32(size) for size in (n, 3, 4, points))
    Module(SOURCE, (f"-DSTAGE={stage}",), ("stage",)).get_function("stage")(
        (3,), (128,), (a, tensor, b, weights, out, *sizes)
    )
    expected = np.einsum("qikes,qkles,qjles,qes->ijes", a, tensor, b, weights).reshape(16, n, 1)
    np.testing.assert_allclose(out, expected, atol=1e-12)
