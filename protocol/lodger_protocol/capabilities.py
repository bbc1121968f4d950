"""What a client of ours can do beyond protocol v2 (`client_info.capabilities`)."""

from dataclasses import dataclass

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Others get plain v2."""

    resume: bool = False
    """Knows `lodger_event` numbers and may ask for what it missed with `after_event`."""
    batch_deltas: bool = False
    """Takes several waiting fragments of one message as one."""
    receipts: bool = False
    """Sends `turn_finished_ack`."""
    questions: bool = True
    """Can show a question to a person. False: the questions of its turns are denied at once, and say so."""
    batch_questions: bool = False
    """Can show several questions at once: all of a step are asked together. Others are asked one after another."""


def read_capabilities(announced: JsonValue) -> Capabilities:
    """A list of words, or an object of words to booleans; anything else counts as plain v2.

    `no_questions` in a list says what `"questions": false` says in an object.
    """
    if isinstance(announced, list):
        words = {word for word in announced if isinstance(word, str)}
        return Capabilities(
            "resume" in words,
            "batch_deltas" in words,
            "receipts" in words,
            "no_questions" not in words,
            "batch_questions" in words,
        )
    if isinstance(announced, dict):
        return Capabilities(
            announced.get("resume") is True,
            announced.get("batch_deltas") is True,
            announced.get("receipts") is True,
            announced.get("questions") is not False,
            announced.get("batch_questions") is True,
        )
    return Capabilities()
