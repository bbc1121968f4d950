"""What the runner remembers of calls."""

from lodger_tools.runner.calls import FINISHED_BYTES_LIMIT, FINISHED_LIMIT, KEY_LIMIT, Call, CallBook
from lodger_tools.runner.kept_output import KeptOutput


def begun(book: CallBook, key: str) -> Call:
    call = Call(key, KeptOutput())
    book.add(call)
    return call


def ended(book: CallBook, key: str, text: str = "", delivered: bool = True) -> Call:
    call = begun(book, key)
    call.finish("success", text)
    call.delivered = delivered
    return call


def test_a_running_call_is_never_dropped() -> None:
    book = CallBook()
    running = begun(book, "running")
    for number in range(2 * FINISHED_LIMIT):
        ended(book, f"k{number}")
    assert (book.find("running"), book.running()) == (running, [running])
    running.finish("success")
    assert (book.find("running"), book.running()) == (running, [])


def test_the_oldest_are_dropped_and_known_as_dropped() -> None:
    book = CallBook()
    for number in range(FINISHED_LIMIT + 3):
        ended(book, f"k{number}")
    last = begun(book, "last")
    dropped = [number for number in range(FINISHED_LIMIT + 3) if book.find(f"k{number}") is None]
    assert dropped == [0, 1, 2]
    assert [book.was_dropped(f"k{number}") for number in range(4)] == [True, True, True, False]
    assert not book.was_dropped("never-seen") and book.find("last") is last


def test_what_nobody_has_fetched_goes_last() -> None:
    book = CallBook()
    ended(book, "unfetched", delivered=False)
    ended(book, "fetched")
    for number in range(FINISHED_LIMIT - 1):
        ended(book, f"k{number}", delivered=False)
    begun(book, "last")
    assert book.find("fetched") is None and book.find("unfetched") is not None
    ended(book, "one more", delivered=False)
    begun(book, "and another")
    assert book.find("unfetched") is None, "where nobody has fetched any, the oldest goes all the same"


def test_much_output_is_dropped_before_many_calls_are() -> None:
    book = CallBook()
    for number in range(5):
        ended(book, f"k{number}", "x" * (FINISHED_BYTES_LIMIT // 4))
    begun(book, "last")
    assert [book.find(f"k{number}") is None for number in range(5)] == [True, False, False, False, False]


def test_keys_are_forgotten_in_the_end() -> None:
    book = CallBook()
    for number in range(FINISHED_LIMIT + KEY_LIMIT + 2):
        ended(book, f"k{number}")
    begun(book, "last")
    assert [book.was_dropped(f"k{number}") for number in range(3)] == [False, False, True]
