"""What the daemon asks about by itself. Pure."""

from enum import StrEnum


class OwnQuestion(StrEnum):
    """What such a question names in place of a tool, so that every client can show and answer it.

    An answer is acted on by this name: no tool may bear one.
    """

    SPEND = "SpendLimit"
    HOSTS = "NetworkAccess"
    GIT = "GitConfiguration"
    PORTS = "PortAccess"
