"""The page of a study: what it says, that it needs nothing else, and that everybody can read it."""

import itertools
import re
import shutil

import numpy as np
import pytest
from scipy import stats

import ensemble as en
from ensemble import xp
from ensemble.uq.report.attempts import numbered
from ensemble.uq.report.pictures import Pictures
from ensemble.uq.report.style import COLORS
from tests.command_line import exit_status
from tests.uq.report.page_reader import Page

TIMES = np.linspace(0.0, 3.0, 9)
INPUTS = en.Inputs(
    load=stats.norm(1.0, 0.2),
    k=stats.lognorm(0.1, scale=3.0),
    kind=en.uq.Categorical({"steel": 0.5, "wo<od": 0.5}),
    c=2.0,
)
OUTPUTS = en.Outputs(t=TIMES, units={"t": "s", "tip": "mm"})


def model(x):
    x.fail(x.load > 1.3, "too heavy <script>alert(1)</script>")
    return {"tip": x.load / x.k, "sway": xp.stack([x.load * xp.exp(-t * x.k) for t in TIMES])}


def small(n=64, **options):
    """A study whose page is quick."""
    inputs = en.Inputs(load=stats.norm(1.0, 0.2))
    return en.propagate(lambda x: {"y": x.load}, inputs, n, seed=5, progress=False, ensemble_size=32, **options)


def run(n=256, **options):
    return en.propagate(model, INPUTS, n, seed=20731, progress=False, ensemble_size=64, outputs=OUTPUTS, **options)


@pytest.fixture(scope="module")
def result():
    return run()


@pytest.fixture(scope="module")
def report(result):
    return result.report()


@pytest.fixture(scope="module")
def text(report):
    return report.html


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_the_page_has_every_section(page):
    assert [one["text"] for one in page.all("h2")] == [
        "What was run", "Inputs", "Statistics", "How the means converged", "The most influential inputs", "Failures",
        "Cost and throughput",
    ]  # fmt: skip
    assert page.all("title")[0]["text"].startswith("Study of ")


def test_statistics_are_those_of_the_result(page, result):
    row = page.table("Statistics of the outputs")[1]
    low, high = result.confidence_interval("tip")
    assert row[:4] == ["tip", "mm", f"{result.mean('tip'):.5g}", f"{low:.5g} to {high:.5g}"]
    titles = [row[0] for row in page.table("Statistics of the outputs")]
    assert "sway(t = 0 s)" in titles and "sway(t = 3 s)" in titles


def test_convergence_ends_with_the_interval_of_all_samples(page, result):
    rows = [row for row in page.table("Means and intervals") if row[0].startswith("tip, ")]
    low, high = result.confidence_interval("tip")
    assert len(rows) == 5 and rows[-1][0] == f"tip, {result.ids.size} samples"
    assert rows[-1][1:] == [f"{result.mean('tip'):.5g}", f"{low:.5g} to {high:.5g}", f"{(high - low) / 2:.5g}"]
    half = run(128)
    assert rows[-2][1] == f"{half.mean('tip'):.5g}"  # half of the study is the study of half as many


def test_the_most_influential_input_is_first(page):
    rows = page.table("Sobol' indices of tip")
    assert [row[0] for row in rows[1:]] == ["load", "k", "kind"]
    # y = a / k: variances of logarithms are 0.0404 and 0.01, so that the load has about four fifths
    assert 0.7 < float(rows[1][1]) < 0.85 and float(rows[3][2]) < 0.01
    assert page.table("Correlation of ranks with tip")[1][0] == "load"


def given_rows(inputs, model, n=256):
    """The table of given data on the page of a study."""
    study = en.propagate(model, inputs, n, seed=20732, progress=False, ensemble_size=n)
    return Page(study.report().html).table("Indices of y from given data")


def test_dependent_inputs_have_indices_of_given_data():
    inputs = en.Inputs(
        a=stats.norm(), b=stats.norm(), c=stats.norm(), kind=en.Categorical(["x", "z"]), correlation={("a", "b"): 0.8}
    )
    rows = given_rows(inputs, lambda x: {"y": x.a + 0.5 * (x.kind == "z")})
    assert [row[0] for row in rows[1:3]] == ["a", "b"] and {row[0] for row in rows[3:]} == {"c", "kind"}
    assert 0.6 < float(rows[1][1]) < 0.95 and 0.35 < float(rows[2][1]) < 0.7  # 1 / 1.25 and 0.64 / 1.25
    assert float(rows[1][3]) <= 0.01 and {row[0]: float(row[3]) for row in rows[1:]}["c"] > 0.05


def test_an_output_that_no_expansion_follows_has_indices_of_given_data(page):
    rows = given_rows(en.Inputs(a=stats.norm(), b=stats.norm()), lambda x: {"y": xp.where(x.a > 1.0, 100.0, x.b)})
    assert rows[1][0] == "a" and float(rows[1][3]) <= 0.01
    assert not any("given data" in one["text"] for one in page.all("caption"))  # chaos misses little


def test_failures_are_told_by_reason_and_place(page, result):
    row = page.table("Failed samples by reason")[1]
    assert row[0] == "too heavy <script>alert(1)</script>" and row[1] == str(result.n_failed)
    place = page.table("Inputs of failed samples")[1]
    assert place[0] == "load" and float(place[1]) > 1.3 and float(place[4]) <= 1.3 and place[5] == "1.00"


@pytest.fixture(scope="module")
def run_again(tmp_path_factory):
    """A study with a fault that went away in part, run again twice; its result and its store."""
    path, inputs = tmp_path_factory.mktemp("again") / "run.zarr", en.Inputs(load=stats.norm(1.0, 0.2))
    for licence, options in ((0.9, {}), (1.0, {"resume": True}), (9.0, {"resume": True})):
        with en.plan(inputs, 256, seed=5, ensemble_size=32, store=path, retry_failed=bool(options), **options) as work:
            for group in work.groups():
                load = group.samples.load.samples
                lost = (load > licence) & (load <= 1.3)
                reasons = {int(i): f"diverged <b> in step {i}\n  log" for i in group.ids[load > 1.3]}
                reasons |= {int(i): "no licence" for i in group.ids[lost]}
                work.tell(group, {"y": load}, failed=lost | (load > 1.3), reasons=reasons)
            result = work.result()
    return result, path


def test_what_reruns_recovered_is_told(run_again, tmp_path, capsys):
    result, path = run_again
    page = Page(result.report().html)
    attempts, failed = result.attempts, result.failed
    recovered = int(np.count_nonzero((attempts > 1) & ~failed))
    assert recovered > 40 and result.n_failed > 5
    head = page.all("header")[0]["text"]
    assert f"{result.n_failed} failed" in head and f"{recovered} succeeded when they were run again" in head
    rows = page.table("Samples by the number of their attempts")[1:]
    counts = [(k, np.count_nonzero(attempts == k), np.count_nonzero((attempts == k) & ~failed)) for k in (1, 2, 3)]
    assert [tuple(int(cell) for cell in row[:3]) for row in rows] == counts
    rows = {row[0]: row[1:] for row in page.table("Reasons of all attempts")[1:]}
    assert rows["no licence"] == [str(recovered), "0", "0"]
    assert rows["diverged <b> in step #"] == ["0", str(result.n_failed), "0"]
    rows = page.table("Samples with more than one attempt")[1:]
    order = sorted(result.earlier_reasons, key=lambda i: (-attempts[i], not failed[i], i))[:20]
    assert [int(row[0]) for row in rows] == order
    for row in rows:
        (reason,) = {text.splitlines()[0] for text in result.earlier_reasons[int(row[0])]}
        assert row[1:3] == ["3", f"1 to 2: {reason}"]
        assert row[3] == (result.reasons[int(row[0])].splitlines()[0] if failed[int(row[0])] else "succeeded")
    assert f"{len(result.earlier_reasons) - 20} further samples are not listed" in page.all("main")[0]["text"]
    assert exit_status(["report", str(path), "-o", str(tmp_path / "p.html")]) == 0
    stored = Page((tmp_path / "p.html").read_text())
    assert stored.table("Samples with more than one attempt") == page.table("Samples with more than one attempt")


def test_reasons_of_attempts_are_numbered():
    assert numbered(["a", "a", "b", "a"]) == "1 to 2: a\n3: b\n4: a"


def test_a_study_that_recovered_all_says_so(tmp_path):
    inputs = en.Inputs(load=stats.norm(1.0, 0.2))
    for again in (False, True):
        options = {"resume": True, "retry_failed": True} if again else {}
        with en.plan(inputs, 64, seed=5, store=tmp_path / "run.zarr", **options) as work:
            for group in work.groups():
                load = group.samples.load.samples
                work.tell(group, {"y": load}, failed=np.zeros(load.shape, bool) if again else load > 1.2)
            result = work.result()
    page = Page(result.report().html)
    text = page.all("main")[0]["text"]
    assert "No sample failed in its last attempt." in text and "Samples that were run again" in text
    assert page.table("Reasons of all attempts")[1][0] == "no reason was given"


def test_a_study_without_reruns_says_nothing_of_them(page):
    assert "run again" not in page.all("body")[0]["text"]


def test_cost_has_time_and_rate(page):
    names = [one["text"] for one in page.all("dt")]
    assert {"Time of all runs", "Samples a second", "Time in the model for each sample"} <= set(names)


# --- one file that needs no other
def test_the_page_needs_nothing_else(text, page):
    assert not page.all("script", "link", "img", "iframe", "object", "image", "foreignobject")
    links = [one["href"] for one in page.elements if "href" in one]
    assert links and all(link.startswith("#") for link in links)
    style = page.all("style")[0]["text"]
    assert "@import" not in style and "url(" not in style and not re.search(r"\son\w+=", text.lower())


def test_equal_results_have_equal_pages(tmp_path):
    result = small()
    first = result.report(tmp_path / "a.html").html
    import matplotlib

    with matplotlib.rc_context({"font.size": 20.0, "axes.facecolor": "red", "svg.hashsalt": None}):
        assert result.report().html == first
    assert (tmp_path / "a.html").read_text() == first


def test_all_entries_of_a_small_array_have_a_row_and_the_table_says_what_a_large_one_has():
    inputs = en.Inputs(a=stats.norm())

    def model(x):
        return {name: en.Ensemble(np.arange(1.0, n + 1)[:, None] * x.a.samples) for name, n in (("u", 24), ("v", 25))}

    html = en.propagate(model, inputs, 16, seed=1, progress=False).report().html
    rows = [row[0] for row in Page(html).table("Statistics of the outputs")]
    assert [sum(row.startswith(name) for row in rows) for name in "uv"] == [24, 7]
    assert "The table has 7 of the 25 entries of v, evenly spread." in html


# --- everybody can read it
def test_headings_follow_in_order_and_sections_are_named(page):
    levels = [int(one["tag"][1]) for one in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [one["id"] for one in page.elements if "id" in one]
    assert len(ids) == len(set(ids))
    assert {one["aria-labelledby"] for one in page.all("section")} <= set(ids)
    texts = [one["text"] for one in page.all("h2", "h3")]  # a screen reader tells sections by them
    assert len(texts) == len(set(texts))
    assert {one["href"][1:] for one in page.elements if one.get("href", "#")[1:]} <= set(ids)


def test_tables_have_captions_and_headers_with_a_scope(page):
    assert len(page.all("caption")) == len(page.all("table")) > 5
    assert {one.get("scope") for one in page.all("th")} == {"row", "col"}
    regions = [one for one in page.all("div") if one.get("class") == "wide"]
    assert len(regions) == len(page.all("table")) and all(one["tabindex"] == "0" for one in regions)


def test_pictures_have_a_text(page):
    pictures = [one for one in page.all("svg") if one.get("class") == "picture"]
    assert len(pictures) > 8 and all(one["role"] == "img" and len(one["aria-label"]) > 20 for one in pictures)
    assert page.all("html")[0]["lang"] == "en" and len(page.all("main")) == 1
    kinds = next(one["aria-label"] for one in pictures if "input kind" in one["aria-label"])
    assert kinds == "Probabilities of the values of the input kind: steel 0.5, wo<od 0.5."


def test_long_reasons_have_lines_as_long_as_the_window(text):
    """A log of several lines stands in one cell, which does not scroll sideways."""
    reasons = text[text.index("Failed samples by reason</caption>") :]
    assert '<th scope="row" class="text">too heavy' in reasons[: reasons.index("</table>")]
    assert re.search(r'th\.text\[scope="row"\] { white-space: pre-line;', text)


@pytest.mark.parametrize("count, top", [(stats.binom(40, 0.5), 20), (stats.randint(0, 90), 0)], ids=["bars", "curve"])
def test_the_picture_of_many_values_is_told_by_its_ends(count, top):
    """Values that hardly occur have no place in it; above 60 values are a curve."""
    drawn = Pictures(None).density("k", en.Inputs(k=count).variables["k"])
    assert re.search(rf"values of the input k: highest at {top}, from (0|[1-9]) to (89|3\d)\.", str(drawn))


def test_pictures_have_the_colours_of_the_page(text):
    drawn = text[text.index("<body>") :]
    assert re.findall(r"(?:fill|stroke): #[0-9a-f]+", drawn) == []


def luminance(color):
    """Relative luminance of WCAG 2.2."""
    channels = [int(color[k : k + 2], 16) / 255.0 for k in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", [name for name in COLORS if name not in ("paper", "raised")])
def test_colours_have_contrast(name, scheme):
    ratio = [luminance(COLORS[one][scheme]) + 0.05 for one in (name, "paper")]
    least = 3.0 if name == "line" else 4.5
    assert max(ratio) / min(ratio) >= least


# --- stores
def test_a_store_gives_the_page_of_its_result(tmp_path, capsys):
    result = small(store=tmp_path / "run.zarr")
    path = tmp_path / "page.html"
    assert exit_status(["report", str(tmp_path / "run.zarr"), "-o", str(path)]) == 0
    assert "64 of 64 samples" in capsys.readouterr().out
    own = result.report().html.replace("<div><dt>Samples in a call of the model</dt><dd>32</dd></div>", "")
    assert path.read_text() == own


def test_a_study_that_is_running_is_told_as_far_as_it_is(tmp_path):
    study = en.plan(INPUTS, 256, seed=20731, ensemble_size=64, store=tmp_path / "run.zarr", outputs=OUTPUTS)
    nothing = Page(en.uq.open_study(tmp_path / "run.zarr").report().html)
    assert "Not finished: 0 of 256" in nothing.all("header")[0]["text"]
    groups = study.groups()
    for _ in range(2):
        group = next(groups)
        study.tell(group, model(group.samples))
    page = Page(en.uq.open_study(tmp_path / "run.zarr").report().html)
    state = page.all("header")[0]["text"]
    assert "Not finished: 128 of 256 samples were run (50 %)" in state and "is running, or was ended" in state
    assert page.all("progress")[0]["value"] == "128"
    assert page.table("Inputs of failed samples")[1][0] == "load"  # drawn again: the store has no inputs yet
    study.close()


def test_a_running_study_with_weights_has_statistics_when_the_rule_is_whole(tmp_path):
    inputs = en.Inputs(a=stats.norm(), b=stats.uniform())
    study = en.plan(inputs, sampler=en.uq.Gauss(3), ensemble_size=9, store=tmp_path / "rule.zarr")
    for group in study.groups():
        study.tell(group, {"y": group.samples.a + group.samples.b})
    stored = en.uq.open_study(tmp_path / "rule.zarr")
    assert float(stored.mean("y")) == float(study.result().mean("y"))
    assert "There are no intervals" in stored.report().html
    study.close()


def test_a_report_of_statistics_alone_says_what_is_missing():
    page = Page(run(64, keep="statistics").report().html)
    text = page.all("main")[0]["text"]
    assert "Only statistics were kept" in text and page.table("Statistics of the outputs")[1][0] == "tip"


class Own:
    """A distribution of the user's."""

    def ppf(self, u):
        return np.asarray(u) ** 2


def test_inputs_that_a_store_cannot_say_are_named_so(tmp_path):
    inputs = en.Inputs(a=Own(), b=stats.norm())
    en.propagate(lambda x: {"y": x.a + x.b}, inputs, 64, seed=5, store=tmp_path / "run.zarr", progress=False)
    page = Page(en.uq.open_study(tmp_path / "run.zarr").report().html)
    text = page.all("main")[0]["text"]
    assert "does not say the distributions of all inputs" in text and "Densities are not drawn of a:" in text
    drawn = [one["aria-label"] for one in page.all("svg") if "of the input" in one.get("aria-label", "")]
    assert len(drawn) == 1 and drawn[0].startswith("Density of the input b, highest at 0")
    assert [row[0] for row in page.table("Correlation of ranks with y")[1:]] == ["b", "a"]


def test_the_costs_of_all_runs_are_in_the_store(tmp_path):
    small(store=tmp_path / "run.zarr")
    again = small(128, store=tmp_path / "run.zarr", resume=True)
    page = Page(again.report().html)
    assert [row[1] for row in page.table("Runs of this study")[1:]] == ["64", "64"]
    (tmp_path / "run.zarr" / ".ensemble" / "cost.json").write_text('{"runs": [{"began": 1e400}]}')
    page = Page(en.uq.open_study(tmp_path / "run.zarr").report().html)
    assert "were not recorded" in page.all("main")[0]["text"]


def test_a_notebook_shows_the_page_in_a_frame(report):
    shown = Page(report._repr_html_()).all("iframe")[0]
    assert shown["srcdoc"] == report.html and shown["title"] and "scripts" not in shown["sandbox"]


@pytest.mark.parametrize(
    "arguments, message",
    [({"path": "page.txt"}, r"path must end in \.html; got 'page.txt'"), ({"level": 95}, "level must be")],
)
def test_wrong_arguments_are_refused(result, arguments, message):
    with pytest.raises(ValueError, match=message):
        result.report(**arguments)


def test_the_command_refuses_what_is_no_store(tmp_path, capsys):
    assert exit_status(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 2
    assert "must be a stored study" in capsys.readouterr().err
    shutil.rmtree(tmp_path)


def odd(x):
    """Outputs of every kind: complex, of no entries, constant, of three axes, integer, bool."""
    one = xp.stack([x.load, x.k])
    return {
        "complex": x.load * (1.0 + 2.0j), "constant": x.load * 0.0 + 3.0, "cube": xp.stack([xp.stack([one, one])] * 2),
        "whole": xp.astype(x.load * 10.0, xp.int64), "flag": x.load > 1.0, "column": xp.stack([one]),
    }  # fmt: skip


@pytest.mark.parametrize("keep", ["all", "statistics"])
def test_outputs_of_every_kind_have_a_page(keep):
    result = en.propagate(odd, INPUTS, 64, seed=5, progress=False, keep=keep)
    titles = [row[0] for row in Page(result.report().html).table("Statistics of the outputs")]
    assert {"complex", "constant", "cube(0, 0, 0)", "whole", "flag", "column(0, 0)"} <= set(titles)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_samples_have_a_page(n):
    inputs = en.Inputs(load=stats.norm(1.0, 0.2))
    result = en.propagate(lambda x: {"y": x.load}, inputs, n, sampler="monte_carlo", seed=5, progress=False)
    assert f"all {n} sample" in Page(result.report().html).all("header")[0]["text"]


def test_a_study_whose_samples_all_failed_has_a_page():
    def fails(x):
        x.fail(x.load > -1e9, "never")
        return {"y": x.load}

    page = Page(en.propagate(fails, INPUTS, 64, seed=5, progress=False, on_failure="mask").report().html)
    assert page.table("Failed samples by reason")[1][:2] == ["never", "64"]
    assert "No sample has succeeded" in page.all("main")[0]["text"]
