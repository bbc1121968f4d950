"""What binds an answer to the call it was given for."""

import hashlib
import json

from lodger_tools.json_value import JsonObject


def arguments_digest(tool_name: str, arguments: JsonObject) -> str:
    """The same for the same tool and equal arguments in any key order; 64 hex digits (SHA-256)."""
    canonical = json.dumps([tool_name, arguments], ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
