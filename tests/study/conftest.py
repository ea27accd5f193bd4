"""The studies on disk that tests of reports use too."""

from tests.report.conftest import kept_study, make_study, study_dir

__all__ = ["kept_study", "make_study", "study_dir"]
