"""Before something goes that nobody brings back, the person is asked; who cannot be asked says so beforehand."""

import contextvars
import io
import sys

import pytest

from lodger_cli.for_programs import ask_for_json
from lodger_cli.terminal import Exit, confirm, require_yes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ["y\n", "YES\n", " yes \n"])
def test_a_yes_goes_on(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    require_yes("it is lost")
    confirm("Drop it?", "nothing was dropped")


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "yes please, but not now\n"])
def test_anything_else_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    with pytest.raises(SystemExit) as ended:
        confirm("Drop it?", "nothing was dropped")
    assert ended.value.code == Exit.FAILED
    assert capsys.readouterr().err == "Drop it? [y/N] \nlodger: nothing was dropped\n"


def as_typed(as_json: bool) -> None:
    ask_for_json(as_json)
    require_yes("it is lost")


@pytest.mark.parametrize(("at_terminal", "as_json"), [(False, False), (True, True)])
def test_who_cannot_be_asked_is_told_what_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at_terminal: bool, as_json: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("y\n") if at_terminal else io.StringIO("y\n"))
    with pytest.raises(SystemExit) as ended:
        contextvars.copy_context().run(as_typed, as_json)
    assert ended.value.code == Exit.USAGE
    assert "lodger: it is lost: say that you are sure with --yes" in capsys.readouterr().err
