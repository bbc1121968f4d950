"""Properties are tried on machines of any speed."""

import threading

from hypothesis import given, settings
from hypothesis import strategies as st

DEFAULT_DEADLINE_S = 0.2
"""The library's own, of each example."""


@settings(max_examples=2)
@given(st.integers())
def test_an_example_on_which_a_stall_falls_does_not_fail(number: int) -> None:
    threading.Event().wait(DEFAULT_DEADLINE_S + 0.1)
