"""PID 1 of a box: `python -I -S -B main.py LISTEN TOKEN LOCK [ORPHAN_S]`, the first three being inherited descriptors.

What runs here imports as little as it can: every module costs a part of the box's start. So no dataclasses, typing,
json, re, asyncio or subprocess on the way to the first answer (SANDBOX-NOTES.md section 2), and plain classes with
slots instead. Files that only some calls need are imported at first use.
"""

from __future__ import annotations

import sys


def name_this_folder() -> None:
    """Make `lodger_tools.runner` importable from this folder alone, without the package around it: inside a box only
    this folder is bound, and outside the same names serve the daemon and the type checker."""
    folder = __file__.rpartition("/")[0] or "."
    module_type = type(sys)
    package = module_type("lodger_tools")
    package.__path__ = []
    runner = module_type("lodger_tools.runner")
    runner.__path__ = [folder]
    sys.modules.setdefault("lodger_tools", package)
    sys.modules.setdefault("lodger_tools.runner", runner)


def main(argv: list[str]) -> int:
    """Serve until told to end, or until nobody has wanted anything for the orphan time-out."""
    listener_fd, token_fd, lock_fd = (int(text) for text in argv[1:4])
    orphan_s = float(argv[4]) if len(argv) > 4 else 1800.0
    name_this_folder()
    from lodger_tools.runner.hardening import harden, take_token

    rank_fd = harden((listener_fd, token_fd, lock_fd))
    token = take_token(token_fd)
    from lodger_tools.runner.server import Server

    Server(listener_fd, token, orphan_s, rank_fd).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
