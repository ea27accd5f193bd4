"""The sections that every study is offered, whatever its papers are."""

from __future__ import annotations

from fallow.report import comparisons, costs, personal, regression, results
from fallow.report.final_table import final_table
from fallow.report.html import Html
from fallow.report.live import live, read_live
from fallow.report.personal import chooses_nothing, of_sites
from fallow.report.section import Place, Section
from fallow.study.records import StudyRecords


def _live(study: StudyRecords, key: str) -> Html | None:
    return live(study)


def _curves(study: StudyRecords, key: str) -> Html | None:
    return None if chooses_nothing(study) else results.curves(study, key)


def _scores(study: StudyRecords, key: str) -> Html | None:
    return results.scores(study, final_table(study))


def _pairs(study: StudyRecords, key: str) -> Html | None:
    return personal.pairs(study)


def _redundancy(study: StudyRecords, key: str) -> Html | None:
    return personal.redundancy(study)


def _errors(study: StudyRecords, key: str) -> Html | None:
    return regression.errors(study)


def _costs(study: StudyRecords, key: str) -> Html | None:
    return regression.costs(study)


def _classes(study: StudyRecords, key: str) -> Html | None:
    return results.classes(study, key) if study.higher_is_better else None


def _partition(study: StudyRecords, key: str) -> Html | None:
    """Nothing for real sites, which do not tell of which classes their rows are."""
    is_told = study.higher_is_better and read_live(study.path) is None
    return results.partition(study, key) if is_told else None


def _balance(study: StudyRecords, key: str) -> Html | None:
    is_told = study.higher_is_better and read_live(study.path) is None
    return results.balance(study, key) if is_told and not chooses_nothing(study) else None


def _settings(study: StudyRecords, key: str) -> Html | None:
    return None if chooses_nothing(study) else comparisons.settings(study)


def _codes(study: StudyRecords, key: str) -> Html | None:
    return None if chooses_nothing(study) else comparisons.codes(study)


def _left(study: StudyRecords, key: str) -> Html | None:
    return costs.left(study)


def _how(study: StudyRecords, key: str) -> Html | None:
    return costs.how(study)


GENERAL = (
    Section("How the run stands", Place.STATE, _live),
    Section("Learning curves", Place.CURVES, _curves),
    Section("Final scores", Place.SCORES, _scores),
    Section("Accuracy over rounds", Place.SITES, of_sites(personal.over_rounds)),
    Section("Sites", Place.SITES, of_sites(personal.sites)),
    Section("Site by site", Place.SITES, of_sites(_pairs)),
    Section("What collaborators had labelled already", Place.SITES, of_sites(_redundancy)),
    Section("Errors over cycles", Place.ERRORS, _errors),
    Section("What the error cost", Place.COSTS, _costs),
    Section("Accuracy by class", Place.CLASSES, _classes),
    Section("Partition", Place.CLASSES, _partition),
    Section("Labels over cycles", Place.CLASSES, _balance),
    Section("What a setting changes", Place.FINDINGS, _settings),
    Section("As in the public code and as in the paper", Place.FINDINGS, _codes),
    Section("What left each site", Place.RUN, _left),
    Section("How it was run", Place.RUN, _how),
)
