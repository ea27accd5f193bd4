"""Report sections for all studies."""

from __future__ import annotations

from fallow.report import (
    comparisons,
    costs,
    description,
    excess,
    heads,
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
from fallow.report.findings.heads import has_heads
from fallow.report.forecast import forecast, has_forecast
from fallow.report.live import live
from fallow.report.section import Place, Section

GENERAL = (
    Section("Progress", Place.STATE, live, is_live),
    Section("Your data", Place.STATE, own_data.own_data, own_data.has_facts),
    Section(
        "Data of the sites",
        Place.STATE,
        description.description,
        description.has_description,
    ),
    Section("Learning curves", Place.CURVES, results.curves, chooses),
    Section("Final scores", Place.SCORES, results.scores),
    Section("Metrics", Place.SCORES, metrics.metrics, metrics.has_metrics),
    Section("Forecast for more labels", Place.SCORES, forecast, has_forecast),
    Section("Accuracy over rounds", Place.SITES, personal.over_rounds, has_sites),
    Section("Sites", Place.SITES, personal.sites, has_sites),
    Section("Site by site", Place.SITES, personal.pairs, has_sites),
    Section(
        "Selected examples similar to labels of collaborators",
        Place.SITES,
        personal.redundancy,
        has_sites,
    ),
    Section("Errors over cycles", Place.ERRORS, regression.errors, has_numbers),
    Section(
        "Errors relative to the fit with all labels",
        Place.ERRORS,
        excess.excess,
        has_numbers,
    ),
    Section("Cost of errors", Place.COSTS, regression.costs, has_numbers),
    Section("Accuracy by class", Place.CLASSES, results.classes, has_classes),
    Section("Partition", Place.CLASSES, results.partition, tells_classes),
    Section("Labels over cycles", Place.CLASSES, results.balance, buys_classes),
    Section("Effect of a setting", Place.FINDINGS, comparisons.settings, chooses),
    Section(
        "Published code compared with the paper",
        Place.FINDINGS,
        comparisons.codes,
        chooses,
    ),
    Section("Closed-form classifiers", Place.RUN, heads.heads, has_heads),
    Section("What left each site", Place.RUN, costs.disclosure),
    Section("Reproduce this study", Place.RUN, costs.run_details),
)
