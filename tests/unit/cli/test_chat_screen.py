"""What the person at the terminal sees of an answer that comes in pieces."""

import pytest

from lodger_cli.chat_screen import ChatScreen

HOSTILE = "a\x1b[2Jpity\x1b]52;c;eA==\x07 and\r\nmore\x1b"


def delta(text: str) -> dict[str, object]:
    said = [{"type": "text", "text": text}]
    return {"type": "stream_delta", "delta": {"message_type": "assistant_message", "content": said}}


@pytest.mark.parametrize("whole_lines", [False, True])
@pytest.mark.parametrize("size", range(1, len(HOSTILE) + 1))
def test_what_would_drive_the_terminal_is_taken_out_wherever_it_is_cut(
    capsys: pytest.CaptureFixture[str], size: int, whole_lines: bool
) -> None:
    screen = ChatScreen(whole_lines)
    for start in range(0, len(HOSTILE), size):
        screen.show(delta(HOSTILE[start : start + size]))
    screen.show({"type": "turn_finished", "stop_reason": "end_turn"})
    assert capsys.readouterr().out == "apity and\nmore\n"
