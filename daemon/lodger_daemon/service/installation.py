"""Where this program itself lies: what an agent could change there would run outside every box."""

import sys
from pathlib import Path
from typing import Final

import lodger_daemon
import lodger_protocol
import lodger_sandbox
import lodger_tools

_PACKAGES: Final = (lodger_daemon, lodger_protocol, lodger_sandbox, lodger_tools)
_PROJECT_FILE: Final = "pyproject.toml"


def installation_folders() -> tuple[str, ...]:
    """The source tree or the packages, the environment they are installed in and the interpreter; free of links."""
    packages = (Path(folder).resolve() for package in _PACKAGES for folder in package.__path__)
    places = (*map(_tree_of, packages), Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())
    return tuple(dict.fromkeys(map(str, places)))


def _tree_of(package: Path) -> Path:
    """Of a package in a source tree the whole tree, with what `make` runs."""
    above = (folder for folder in package.parents if (folder / _PROJECT_FILE).is_file())
    return next(above, package)
