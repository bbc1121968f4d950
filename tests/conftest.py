"""Options of the whole test tree."""

import pytest
from hypothesis import HealthCheck, settings

from support.needed_programs import needed

# A stall of the machine's is no fault of the example that it fell on.
settings.register_profile("any machine", deadline=None, suppress_health_check=(HealthCheck.too_slow,))
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="the full counts of seeded and long tests")
    parser.addoption("--memory-seed", help="one seed of the shared memories: SEED:MACHINES:hub or :foreign")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--soak"):
        return
    soak = [item for item in items if item.get_closest_marker("soak")]
    config.hook.pytest_deselected(items=soak)
    items[:] = [item for item in items if item not in soak]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for program in mark.args:
            needed(program)
