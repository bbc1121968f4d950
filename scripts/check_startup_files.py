"""Refuse an environment with a `.pth` file that nobody expects: such files run at every start of Python.

litellm 1.82.8 was an attack of this kind. Expected are only what pip and our own editable install write.
"""

import sys
import sysconfig
from pathlib import Path

EXPECTED = {"_lodger.pth", "distutils-precedence.pth", "_editable_impl_lodger.pth", "a1_coverage.pth"}


def main() -> int:
    folder = Path(sysconfig.get_paths()["purelib"])
    strangers = sorted(path.name for path in folder.glob("*.pth") if path.name not in EXPECTED)
    if strangers:
        print(f"Unexpected start-up files in {folder}: {', '.join(strangers)}")
        print("They would run at every start of Python. Remove the environment and install again.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
