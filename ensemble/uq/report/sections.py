"""The sections of a report: each is its id, its title, and its HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ensemble.uq.report.attempts import attempts_parts
from ensemble.uq.report.convergence import Convergence, converged
from ensemble.uq.report.failures import places_of_failures, reasons_of
from ensemble.uq.report.influence import LARGE_ERROR, Influence, influences
from ensemble.uq.report.markup import Markup, element, figure, listed, paragraph, section, table
from ensemble.uq.report.pictures import Pictures
from ensemble.uq.report.source import Source
from ensemble.uq.report.statistics import columns_of, left_out, rows_of
from ensemble.uq.report.texts import count, described_input, duration, moment, number, percent
from ensemble.uq.store.manifest import current_versions

__all__ = [
    "cost_section", "failures_section", "influence_section", "inputs_section", "outputs_section", "run_section",
]  # fmt: skip

Section = tuple[str, str, Markup]

MOST_PICTURES = 12
"""Outputs, and inputs, that have pictures; tables have all."""

MOST_LISTED = 200


def run_section(source: Source) -> Section:
    """What was run: model, sampler, versions."""
    result, manifest = source.result, source.manifest
    versions = manifest.get("versions") or current_versions()
    facts: list[tuple[str, Any]] = [
        ("Model", manifest.get("model")),
        ("Digest of the model's source", manifest.get("source_digest")),
        ("Sampler", str(manifest.get("statistics", {}).get("sampler") or result.sampler)),
        ("Seed", str(result.seed)),
        ("Samples", f"{result.n:,}"),
        ("Samples in a call of the model", None if result.ensemble_size is None else str(result.ensemble_size)),
        ("Store", None if source.path is None else source.path.name),
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    later = [", ".join(f"{name} {v}" for name, v in one.items()) for one in manifest.get("later_versions", [])]
    facts += [("Later continued with", text) for text in later]
    return "run", "What was run", section("run", "What was run", listed(facts))


def is_not_said(described: Mapping[str, Any]) -> bool:
    """Whether an input that has no density is one that a page would draw, if it knew its distribution."""
    return described.get("kind", "constant") != "constant" and "coefficients" not in described


def inputs_section(source: Source, pictures: Pictures) -> Section | None:
    """The inputs: distributions and their densities, correlations."""
    described = source.manifest.get("inputs", {}).get("inputs", {})
    if not described:
        return None
    rows = []
    for name, one in list(described.items())[:MOST_LISTED]:
        kind, text = described_input(one)
        rows.append((name, kind, text))
    left = len(described) - len(rows)
    parts: list[Any] = [table("Inputs and their distributions", ("input", "distribution", "parameters"), rows, (1, 2))]
    parts += [paragraph(f"{count(left, 'further input')} are not listed.")] if left else []
    variables = source.variables
    drawn = [(name, pictures.density(name, variable)) for name, variable in variables[:MOST_PICTURES]]
    figures = [figure(picture, caption_of(name)) for name, picture in drawn if picture is not None]
    parts += [element("div", *figures, class_="pictures small")] if figures else []
    known = {name.partition("[")[0] for name, _ in variables}
    unknown = [name for name, one in described.items() if is_not_said(one) and name not in known]
    if source.inputs is None and unknown:
        names = ", ".join(unknown[:MOST_LISTED])
        text = f"Densities are not drawn of {names}: the store does not say their distributions."
        parts.append(paragraph(text, class_="note"))
    table_of_pairs = (source.manifest["inputs"].get("correlation") or {}).get("pairs") or []
    if table_of_pairs:
        kind = source.manifest["inputs"]["correlation"].get("kind", "")
        whose = {"normal": "of the normal germs", "pearson": "of the values", "spearman": "of the ranks"}.get(
            kind, kind
        )
        pairs = [(f"{place(a)}, {place(b)}", number(r)) for a, b, r in table_of_pairs[:MOST_LISTED]]
        parts.append(table(f"Correlations {whose}", ("inputs", "correlation"), pairs))
    return "inputs", "Inputs", section("inputs", "Inputs", *parts)


def place(component: Sequence[Any]) -> str:
    """An input or its component."""
    name, k = component
    return f"{name}[{k}]" if k else str(name)


def caption_of(name: str) -> str:
    """The caption of a picture of an input."""
    return f"Input {name}"


def outputs_section(source: Source, pictures: Pictures, level: float) -> list[Section]:
    """Statistics with intervals, their convergence, and a picture of each output."""
    result = source.result
    if not result.ids.size:
        text = "No sample has succeeded yet, so there are no statistics."
        return [("statistics", "Statistics", section("statistics", "Statistics", paragraph(text)))]
    rows = [row for name in result.names[:MOST_LISTED] for row in rows_of(source, name, level)]
    caption = f"Statistics of the outputs, from {count(result.ids.size, 'sample')}"
    parts: list[Any] = [table(caption, columns_of(level), rows)]
    if text := left_out(source, result.names[:MOST_LISTED]):
        parts.append(paragraph(text))
    if reason := result.no_interval():
        parts.append(paragraph(f"There are no intervals: {reason}.", class_="note"))
    shown = result.names[:MOST_PICTURES]
    drawn = [(k, name, pictures.output(name, level)) for k, name in enumerate(shown)]
    inside = [
        section(f"output-{k}", name, figure(picture, caption_of_output(source, name, level)), level=3)
        for k, name, picture in drawn if picture is not None
    ]  # fmt: skip
    parts += [element("div", *inside, class_="pictures")] if inside else []
    if len(result.names) > len(shown):
        parts.append(paragraph(f"{count(len(result.names) - len(shown), 'further output')} without a picture."))
    found = [one for one in (converged(source, name, level) for name in shown) if one is not None]
    statistics = ("statistics", "Statistics", section("statistics", "Statistics", *parts))
    return [statistics, convergence_section(source, pictures, found, level)]


def caption_of_output(source: Source, name: str, level: float) -> str:
    """What the picture of an output shows."""
    axes = len(source.result.dims[name])
    if axes == 0:
        return f"Histogram of the samples of {name}, with their mean and the {100 * level:g} % interval of the mean."
    if axes == 1:
        return f"{name}: the median, and the ranges that hold 50 %, 80 % and 95 % of the samples."
    return f"{name}: mean and standard deviation of each entry."


def convergence_section(source: Source, pictures: Pictures, found: list[Convergence], level: float) -> Section:
    """The means with their intervals from half of the samples, a quarter, and so on."""
    title = "How the means converged"
    if not found:
        why = "Only statistics were kept, and no samples." if not source.kept else "There are too few samples for it."
        return "convergence", title, section("convergence", title, paragraph(why))
    figures = []
    for one in found:
        caption = f"Mean of {one.name} from the first samples, and its {100 * level:g} % interval."
        figures.append(figure(pictures.convergence(one, level), caption))
    rows = [
        (f"{one.name}, {n:,} samples", number(mean), f"{number(low)} to {number(high)}" if np.isfinite(low) else "–",
         number(0.5 * (high - low)))
        for one in found for n, mean, low, high in zip(one.counts, one.mean, one.low, one.high, strict=True)
    ]  # fmt: skip
    columns = ("output", "mean", f"{100 * level:g} % interval", "half-width")
    listing = table("Means and intervals by the number of samples", columns, rows)
    return "convergence", title, section("convergence", title, element("div", *figures, class_="pictures"), listing)


def influence_section(source: Source, pictures: Pictures) -> Section | None:
    """The most influential inputs of each output."""
    result, title = source.result, "The most influential inputs"
    names = [name for name in result.names[:MOST_PICTURES] if result.ids.size and np.asarray(result.mean(name)).size]
    names = [name for name in names if np.asarray(result.mean(name)).dtype.kind != "c"]
    if not names:
        return None
    found, reason = influences(source, names)
    parts: list[Any] = [paragraph(f"There are no Sobol' indices. {reason}", class_="note")] if reason else []
    for k, one in enumerate(found):
        inside = [*indices_parts(one, pictures), *given_parts(one), *rank_parts(one, pictures)]
        if inside:
            parts.append(section(f"influence-{k}", f"What acts on {one.name}", *inside, level=3))
    return "influence", title, section("influence", title, *parts)


def indices_parts(one: Influence, pictures: Pictures) -> list[Any]:
    """The Sobol' indices of an output."""
    if one.first is None:
        return []
    order = np.argsort(-one.total, kind="stable")[:MOST_LISTED]
    rows = [(one.inputs[k], f"{one.first[k]:.3f}", f"{one.total[k]:.3f}") for k in order]
    text = (
        f"From a polynomial chaos expansion of degree {one.degree} with {count(one.n_terms, 'term')}, fitted to the "
        f"samples. It misses {percent(max(one.error, 0.0), 1.0)} of the variance."
    )
    if one.error > LARGE_ERROR:
        text += " The indices may be off by as much: ensemble.sobol_indices runs the model for them."
    picture = figure(pictures.indices(one), f"Sobol' indices of {one.name}: parts of its variance.")
    listing = table(f"Sobol' indices of {one.name}", ("input", "first", "total"), rows)
    said = paragraph(text, class_="note" if one.error > LARGE_ERROR else None)
    return [said, element("div", picture, listing, class_="pictures")]


def given_parts(one: Influence) -> list[Any]:
    """The indices of given data of an output."""
    if not one.given:
        return []
    rows = [(name, f"{first:.3f}", f"{delta:.3f}", f"{p:.2g}") for name, first, delta, p in one.given[:MOST_LISTED]]
    text = (
        f"From {count(one.n_given, 'sample')} as they are, also where inputs depend on each other: the first index is "
        "the part of the variance that knowing the input alone explains; delta, from 0 to 1, how far it moves the "
        "distribution; the p-value is the probability of so large a delta without any dependence."
    )
    listing = table(f"Indices of {one.name} from given data", ("input", "first", "delta", "p-value"), rows)
    return [paragraph(text), listing]


def rank_parts(one: Influence, pictures: Pictures) -> list[Any]:
    """Correlations of ranks, and the output against the two inputs of the largest."""
    if not one.ranks:
        return []
    order = sorted(one.ranks, key=lambda name: -abs(one.ranks[name]))
    rows = [(name, number(round(one.ranks[name], 4))) for name in order[:MOST_LISTED]]
    figures = [
        figure(
            pictures.scatter(one.name, name),
            f"{one.name} against {name}: rank correlation {number(round(one.ranks[name], 2))}.",
        )
        for name in order[:2]
    ]
    listing = table(f"Correlation of ranks with {one.name}", ("input", "rank correlation"), rows)
    return [element("div", *figures, class_="pictures"), listing]


def failures_section(source: Source, pictures: Pictures) -> Section:
    """How many samples failed, why, and where."""
    result, title = source.result, "Failures"
    if not result.n_failed:
        again = attempts_parts(result)
        text = (
            f"No sample failed{' in its last attempt' if again else ''}." if result.n_done else "No sample was run yet."
        )
        return "failures", title, section("failures", title, paragraph(text), *again)
    reasons = reasons_of(result.reasons, result.failed)
    rows = [
        (one.text[:300], f"{len(one.ids):,}", percent(len(one.ids), result.n_done),
         ", ".join(map(str, one.ids[:5])) + (", …" if len(one.ids) > 5 else ""))
        for one in reasons
    ]  # fmt: skip
    parts: list[Any] = [
        paragraph(f"{result.n_failed:,} of {count(result.n_done, 'sample')} that were run failed, and are left out of "
                  "the statistics."),
        table("Failed samples by reason", ("reason", "samples", "share", "sample numbers"), rows, (0, 3)),
    ]  # fmt: skip
    places = places_of_failures(source)
    if places:
        parts.append(element("h3", "Where they lie"))
        parts.append(paragraph("Inputs in which failed samples differ most from the others come first. The distance is "
                               "that between their distribution functions, 0 to 1; the probability is that of so large "
                               "a distance if failures did not depend on the input."))  # fmt: skip
        columns = ("input", "failed, from", "failed, to", "others, from", "others, to", "distance", "probability")
        inside = [
            (one.column.name, *(number(end) for v in (one.failed, one.others) for end in (v[0], v[-1])),
             f"{one.distance:.2f}", f"{one.chance:.2g}")
            for one in places[:MOST_LISTED]
        ]  # fmt: skip
        figures = [
            figure(pictures.failures(one), f"Share of failed samples along {one.column.name}.") for one in places[:2]
        ]
        if len(places) > 1:
            caption = f"Failed samples and others, by {places[0].column.name} and {places[1].column.name}."
            figures.append(figure(pictures.failure_map(places), caption))
        parts += [element("div", *figures, class_="pictures"), table("Inputs of failed samples", columns, inside)]
    elif result.ids.size:
        parts.append(paragraph("Where they lie is not known: the store has not got the values of the inputs yet."))
    return "failures", title, section("failures", title, *parts, *attempts_parts(result))


def cost_section(source: Source) -> Section:
    """Time, throughput and size."""
    title, runs = "Cost and throughput", source.costs
    if not runs:
        text = "The times of this study were not recorded."
        return "cost", title, section("cost", title, paragraph(text))
    seconds, samples = sum(run.seconds for run in runs), sum(run.n_samples for run in runs)
    inside = sum(run.model_seconds for run in runs)
    per_second = samples / seconds if seconds else float("nan")
    facts = [
        ("Time of all runs", duration(seconds)),
        ("Samples a second", number(per_second)),
        ("Time in the model for each sample", duration(inside / samples) if inside else None),
        ("Time in the model, over all workers", duration(inside) if inside else None),
        ("Calls of the model at a time, on average", number(inside / seconds) if inside and seconds else None),
        ("First group begun", moment(runs[0].began)),
        ("Last group ended", moment(runs[-1].ended)),
        ("Samples in these runs", f"{samples:,}"),
    ]
    left = source.result.n - source.result.n_done
    if left and per_second > 0.0:
        facts.append(("Time for the samples that are left, at this rate", duration(left / per_second)))
    rows = [
        (moment(run.began), f"{run.n_samples:,}", duration(run.seconds),
         number(run.n_samples / run.seconds) if run.seconds else "–")
        for run in runs[-MOST_LISTED:]
    ]  # fmt: skip
    listing = table("Runs of this study", ("begun", "samples", "time", "samples a second"), rows)
    return "cost", title, section("cost", title, listed(facts), listing if len(runs) > 1 else None)
