"""The small studies that are also used by tests of the report."""

from tests.report.conftest import make_study, study_dir

__all__ = ["make_study", "study_dir"]
