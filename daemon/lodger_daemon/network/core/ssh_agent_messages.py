"""Which requests of a box reach the person's ssh agent: those that list keys and sign. Pure.

The protocol has others, which change what the agent holds, lock it, or have it load a library by its path: with those a
box would act outside of itself.
"""

import struct
from typing import Final

MESSAGE_LIMIT_BYTES: Final = 256 * 1024
"""What OpenSSH's agent takes."""
FAILURE: Final = b"\x05"
"""SSH_AGENT_FAILURE."""
_LIST_KEYS, _SIGN, _EXTENSION = 11, 13, 27
_SESSION_BIND: Final = b"session-bind@openssh.com"
"""Says to which server a connection leads, by which keys that are bound to servers are judged; it changes nothing."""
_BIND_HEAD: Final = struct.pack("!BI", _EXTENSION, len(_SESSION_BIND)) + _SESSION_BIND


def may_pass(message: bytes) -> bool:
    """
    Args:
        message: without the four bytes of its length.
    """
    if not message:
        return False
    return message[0] in (_LIST_KEYS, _SIGN) or message.startswith(_BIND_HEAD)
