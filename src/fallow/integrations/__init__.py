"""Integrations: scikit-activeml and notebooks.

Each requires an optional package.  An error names the extra that installs it.
"""

from fallow.integrations.scikit_activeml import FromScikitActiveML

__all__ = ["FromScikitActiveML"]
