"""Integrations that require an optional package; an error names the extra that installs it."""

from fallow.integrations.scikit_activeml import FromScikitActiveML

__all__ = ["FromScikitActiveML"]
