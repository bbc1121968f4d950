"""The identifiers of the real source are what `uuid.uuid4` makes."""

import uuid

from lodger_daemon.randomness import SystemRng


def test_an_identifier_is_a_random_uuid_in_its_usual_text_form() -> None:
    made = [SystemRng().uuid() for _ in range(1000)]
    read = [uuid.UUID(text) for text in made]
    assert [str(one) for one in read] == made
    assert {(one.version, one.variant) for one in read} == {(4, uuid.RFC_4122)}
    assert len(set(made)) == len(made)
    assert {text[19] for text in made} == set("89ab")
