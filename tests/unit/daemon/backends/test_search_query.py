"""Whatever is typed is a query of the index, or refused with words."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_daemon.backends.core.search_query import QueryRefused, joined, match_of, span_of, spread


@pytest.mark.parametrize(
    ("typed", "match"),
    [
        ("tea", '"tea"'),
        ("green  tea", '"green" AND "tea"'),
        ('"green tea" cup', '"green tea" AND "cup"'),
        ('"never closed', '"never closed"'),
        ("harb*", '"harb"*'),
        ("tea -milk", '("tea") NOT ("milk")'),
        ("a.b/c", '"a.b/c"'),
        ("NEAR(a b)", '"NEAR(a" AND "b)"'),
        ("漢字", '" 漢  字 "'),
    ],
)
def test_what_is_typed_becomes_words_phrases_and_beginnings(typed: str, match: str) -> None:
    assert match_of(typed) == match


@pytest.mark.parametrize("typed", ["", "  ", '""', "-tea", "!!! …", "*", "x" * 1_001, "a " * 33])
def test_a_search_for_nothing_or_too_much_is_refused(typed: str) -> None:
    with pytest.raises(QueryRefused):
        match_of(typed)


@given(st.text(max_size=60))
def test_no_text_is_a_malformed_query(typed: str) -> None:
    index = sqlite3.connect(":memory:")
    index.execute("CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2')")
    try:
        match = match_of(typed)
    except QueryRefused:
        return
    index.execute("SELECT rowid FROM texts WHERE texts MATCH ?", (match,)).fetchall()
    index.close()


def test_signs_are_words_in_the_index_and_a_text_again_when_shown() -> None:
    assert joined(spread("茶を飲む today")).strip() == "茶を飲む today"
    assert spread("tea") == "tea"


def test_a_day_counts_whole_and_what_is_no_date_is_refused() -> None:
    day = span_of("2026-11-30", "2026-11-30")
    assert day.since is not None
    assert day.until is not None
    assert 23 * 3600 <= day.until - day.since <= 25 * 3600
    assert span_of(None, "").until is None
    assert span_of("2026-11-30T14:00:00+01:00", None).since == 1796043600.0
    for wrong in ("yesterday", "2026-13-01", "9999-12-31"):
        with pytest.raises(QueryRefused):
            span_of(None, wrong)
