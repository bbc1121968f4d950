"""What must not be lost is tried again for as long as the store cannot take it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from lodger_daemon.store.errors import StoreError

T = TypeVar("T")


async def until_stored(
    attempt: Callable[[], Awaitable[T]],
    wait: Callable[[StoreError], Awaitable[None]],
    is_stopping: Callable[[], bool],
) -> T:
    """Attempt a change until it is committed, with `wait` in between, such as while the disk is full.

    Raises: StoreError for one that another attempt would not mend, and for any once the daemon stops: the next one
    finds on paper how far this came.
    """
    while True:
        try:
            return await attempt()
        except StoreError as error:
            if not error.retryable or is_stopping():
                raise
            refusal = error
        await wait(refusal)
