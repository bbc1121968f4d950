"""Loads what lies in a folder of tests, which is no package."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def beside(test: str, name: str) -> ModuleType:
    """The module of this name beside the test's file, once for all who ask; it may import another by its bare name that
    was loaded before it."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, Path(test).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
