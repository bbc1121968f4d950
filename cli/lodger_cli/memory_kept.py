"""`lodger memory kept`: what lies beside an agent's memory so that nothing is lost, and what becomes of it."""

import time

from lodger_cli.memory import SYNC_WAIT_S, ask_daemon
from lodger_cli.terminal import age, confirm, fail, for_terminal, note, require_yes, say, say_json
from lodger_cli.wire import Frame


def kept(agent: str, shared: str, name: str, action: str, *, sure: bool, as_json: bool) -> None:
    """List what is kept; with a name only that, after the action on it."""
    frame: Frame = {"type": "lodger_memory_kept", **({"shared": shared} if shared else {})}
    if action == "drop" and not sure:
        require_yes("nothing brings back what is dropped")
        confirm(f"Drop {name}? Nothing brings back what only it holds.", "nothing was dropped")
    if action:
        frame |= {"action": action, "name": name}
    answer = ask_daemon(frame, agent, limit_s=SYNC_WAIT_S)
    found = [one for one in answer["kept"] if name in ("", one["name"])]
    if name and not action and not found:
        fail(f"nothing is kept as {name}: `lodger memory kept` lists what is")
    if as_json:
        say_json({"head": answer["head"], "changed": answer["changed"]} if action == "restore" else found)
    elif action == "restore":
        done = "The memory's files are those of" if answer["changed"] else "The memory's files were already those of"
        say(f"{done} {name}, at commit {answer['head'][:12]}. {name} is still kept: --drop lets go of it.")
    elif action == "drop":
        say(f"{name} is let go of. What only it held goes with the next upkeep of this memory.")
    else:
        _say(found, shared)


def _say(found: list[Frame], shared: str) -> None:
    for one in found:
        say(for_terminal(f"{one['name']}  {one['commit'][:12]}, {age(time.time() - one['at'])}: {one['subject']}"))
    if not found:
        say("Nothing is kept beside this memory.")
        return
    which = f" --shared {shared}" if shared else ""
    note(f"lodger: to look: `lodger memory diff{which} COMMIT`, `lodger memory show{which} PATH --at COMMIT`")
    note(f"lodger: to decide: `lodger memory kept{which} NAME --restore` brings it back, --drop lets go of it")
