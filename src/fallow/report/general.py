"""Report sections for all studies."""

from __future__ import annotations

from fallow.report import (
    closed_form,
    comparisons,
    costs,
    description,
    excess,
    metrics,
    own_data,
    personal,
    regression,
    results,
)
from fallow.report.conditions import (
    buys_classes,
    chooses,
    has_classes,
    has_numbers,
    has_sites,
    is_live,
    tells_classes,
)
from fallow.report.findings.closed_form import has_closed_form
from fallow.report.forecast import forecast, has_forecast
from fallow.report.live import live
from fallow.report.section import Section, SectionPosition

GENERAL = (
    Section("Progress", SectionPosition.STATE, live, is_live),
    Section("Your data", SectionPosition.STATE, own_data.own_data, own_data.has_facts),
    Section(
        "Data of the sites",
        SectionPosition.STATE,
        description.description,
        description.has_description,
    ),
    Section("Learning curves", SectionPosition.CURVES, results.curves, chooses),
    Section("Final scores", SectionPosition.SCORES, results.scores),
    Section("Metrics", SectionPosition.SCORES, metrics.metrics, metrics.has_metrics),
    Section("Forecast for more labels", SectionPosition.SCORES, forecast, has_forecast),
    Section("Accuracy over rounds", SectionPosition.SITES, personal.over_rounds, has_sites),
    Section("Sites", SectionPosition.SITES, personal.sites, has_sites),
    Section("Site by site", SectionPosition.SITES, personal.pairs, has_sites),
    Section(
        "Selected examples similar to labels of collaborators",
        SectionPosition.SITES,
        personal.redundancy,
        has_sites,
    ),
    Section("Errors over cycles", SectionPosition.ERRORS, regression.errors, has_numbers),
    Section(
        "Errors relative to the fit with all labels",
        SectionPosition.ERRORS,
        excess.excess,
        has_numbers,
    ),
    Section("Cost of errors", SectionPosition.COSTS, regression.costs, has_numbers),
    Section("Accuracy by class", SectionPosition.CLASSES, results.classes, has_classes),
    Section("Partition", SectionPosition.CLASSES, results.partition, tells_classes),
    Section("Labels over cycles", SectionPosition.CLASSES, results.balance, buys_classes),
    Section("Effect of a setting", SectionPosition.FINDINGS, comparisons.settings, chooses),
    Section(
        "Published code compared with the paper",
        SectionPosition.FINDINGS,
        comparisons.codes,
        chooses,
    ),
    Section(
        "Closed-form classifiers",
        SectionPosition.RUN,
        closed_form.closed_form,
        has_closed_form,
    ),
    Section("What left each site", SectionPosition.RUN, costs.disclosure),
    Section("Reproduce this study", SectionPosition.RUN, costs.run_details),
)
