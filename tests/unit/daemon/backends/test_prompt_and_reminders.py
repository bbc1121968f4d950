"""What the model is told once, and what it is told on change."""

from dataclasses import replace

from lodger_daemon.backends.core.reminders import MemoryUpdate, Surroundings, last_shown, reminders_for
from lodger_daemon.backends.core.system_prompt import PromptFacts, compile_system_prompt
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import MessageId
from lodger_tools.json_value import Json, JsonObject
from lodger_tools.permissions.core.modes import Mode

FACTS = PromptFacts("Ada", "Be kind.", "/home/p/memory", "The person likes tea.")
NOW = Surroundings("2026-11-30", "Linux", "laptop", "/w", "agent-1", "Ada", "/home/p/memory", Mode.STANDARD, ())


def kinds(reminders: list[Json]) -> list[str]:
    return [str(reminder["kind"]) for reminder in reminders if isinstance(reminder, dict)]


def told(shown: JsonObject, kind: MessageKind = MessageKind.USER) -> TranscriptMessage:
    return TranscriptMessage(MessageId("m"), kind, {"content": "x", "shown": shown}, WallTime(0.0))


def test_equal_facts_give_the_same_bytes_in_a_fixed_order() -> None:
    prompt = compile_system_prompt(FACTS)
    assert prompt == compile_system_prompt(replace(FACTS))
    places = [prompt.index(text) for text in ("Ada", "# House rules", "Be kind.", "/home/p/memory", "likes tea")]
    assert places == sorted(places)


def test_empty_parts_leave_no_heading() -> None:
    prompt = compile_system_prompt(replace(FACTS, person_instructions=" ", memory_text=""))
    assert "Instructions of your person" not in prompt
    assert "<memory>" not in prompt


def test_everything_is_told_first_and_then_only_what_changed() -> None:
    reminders, shown = reminders_for(NOW, {}, None)
    assert kinds(reminders) == ["session", "agent", "mode"]
    assert reminders_for(NOW, shown, None) == ([], {})
    moved, _ = reminders_for(replace(NOW, cwd="/other"), shown, None)
    assert kinds(moved) == ["session"]
    strict, _ = reminders_for(replace(NOW, mode=Mode.STRICT), shown, None)
    assert kinds(strict) == ["mode"]


def test_every_mode_has_words() -> None:
    for mode in Mode:
        reminders, _ = reminders_for(replace(NOW, mode=mode), {}, None)
        assert mode.value in str(reminders[2])


def test_a_state_of_the_memory_is_told_once_and_so_is_its_end() -> None:
    _, shown = reminders_for(NOW, {}, None)
    conflict = replace(NOW, memory_states=("A conflict waits.",))
    reminders, more = reminders_for(conflict, shown, None)
    assert kinds(reminders) == ["memory"]
    shown = {**shown, **more}
    assert reminders_for(conflict, shown, None) == ([], {})
    reminders, more = reminders_for(NOW, shown, None)
    assert "in order again" in str(reminders)
    assert reminders_for(NOW, {**shown, **more}, None) == ([], {})


def test_a_branch_is_told_when_it_is_known_and_when_it_changes() -> None:
    _, shown = reminders_for(NOW, {}, None)
    on_main = replace(NOW, git_branch="main")
    reminders, more = reminders_for(on_main, shown, None)
    assert kinds(reminders) == ["git"]
    shown = {**shown, **more}
    for unchanged in (on_main, NOW):
        assert reminders_for(unchanged, shown, None) == ([], {})
    reminders, _ = reminders_for(replace(NOW, git_branch="fix"), shown, None)
    assert "branch fix" in str(reminders)


def test_what_runs_in_the_background_is_told_on_change_and_so_is_its_end() -> None:
    _, shown = reminders_for(NOW, {}, None)
    busy = replace(NOW, background=("[processes left running: 2]",))
    reminders, more = reminders_for(busy, shown, None)
    assert kinds(reminders) == ["background"]
    shown = {**shown, **more}
    assert reminders_for(busy, shown, None) == ([], {})
    reminders, more = reminders_for(NOW, shown, None)
    assert "any more" in str(reminders)
    assert reminders_for(NOW, {**shown, **more}, None) == ([], {})


def test_tools_are_told_only_when_they_change() -> None:
    with_tools = replace(NOW, toolset=("Bash", "Read"))
    reminders, shown = reminders_for(with_tools, {}, None)
    assert "toolset" not in kinds(reminders)
    assert reminders_for(with_tools, shown, None) == ([], {})
    reminders, more = reminders_for(replace(NOW, toolset=("Bash", "Lamp")), shown, None)
    assert kinds(reminders) == ["toolset"]
    assert "new: Lamp" in str(reminders)
    assert "No longer there: Read" in str(reminders)
    reminders, _ = reminders_for(with_tools, {**shown, **more}, None)
    assert "new: Read" in str(reminders)


def test_news_of_the_memory_ride_along() -> None:
    _, shown = reminders_for(NOW, {}, None)
    reminders, _ = reminders_for(NOW, shown, MemoryUpdate("c2", "The person likes coffee."))
    assert kinds(reminders) == ["memory_update"]
    assert reminders_for(NOW, shown, MemoryUpdate("c2", "")) == ([], {})


def test_a_summary_arms_every_reminder_again() -> None:
    first, second = told({"mode": "a", "session": "s"}), told({"mode": "b"})
    assert last_shown([first, second]) == {"mode": "b", "session": "s"}
    assert last_shown([first, told({}, MessageKind.SUMMARY), second]) == {"mode": "b"}
