"""The stored studies that are also used by tests of reports."""

from tests.report.conftest import kept_study, make_study, study_dir

__all__ = ["kept_study", "make_study", "study_dir"]
