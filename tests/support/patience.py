"""How long a test waits for what has to come."""

from typing import Final

LIMIT_S: Final = 40.0
"""Generous, because a loaded machine is slow; reached only when something is wrong. Where the time itself is promised,
the test names its own."""
