"""The one place that says which release this is; pyproject.toml reads it from here."""

from typing import Final

VERSION: Final = "0.1.0"
