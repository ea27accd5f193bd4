"""The small studies of the report's tests."""

from tests.report.conftest import make_study, study_dir

__all__ = ["make_study", "study_dir"]
