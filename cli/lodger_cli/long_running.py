"""How a process that runs for weeks treats its memory and its threads: measured, each in one line."""

import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

SWITCH_INTERVAL_S: Final = 0.0005
"""How long another thread may keep the event loop waiting for the interpreter. Python's 5 ms is felt in every commit
of a tool call (8 ms became 6 ms); the writer's own work between two switches is shorter than this."""


@contextmanager
def imports_without_collection() -> Iterator[None]:
    """Import the program's modules without collecting garbage between them (40 of 400 ms): nothing of it is garbage.
    Afterwards none of them is looked at again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def prefer_the_event_loop() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def leave_quickly() -> NoReturn:
    """End the process now that everything is closed and committed: taking the interpreter apart would only add to how
    long a stop takes."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
