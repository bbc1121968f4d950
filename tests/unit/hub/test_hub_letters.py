"""How a letter is written down: it stays as large as it was posted, in every script."""

import json

import pytest

from lodger_hub.mailbox.core.letters import Letter, read_letter


@pytest.mark.parametrize("text", ["plain", "Привет, как дела? " * 100, "日本語" * 100, "half a pair: \ud83d"])
def test_a_letter_is_as_large_as_it_was_posted(text: str) -> None:
    posted = {
        "type": "input",
        "runtime": {"agent_id": "agent-1", "conversation_id": "default"},
        "payload": {"kind": "create_message", "messages": [{"client_message_id": "m1", "content": text}]},
        "request_id": "mail-0",
    }
    escaped = "\ud83d" in text
    body = json.dumps(posted, ensure_ascii=escaped, separators=(",", ":"))
    letter = read_letter(body, "mail-1")
    assert isinstance(letter, Letter)
    assert json.loads(letter.frame) == {**posted, "request_id": "mail-1"}
    assert len(letter.frame.encode()) == len(body.encode())
