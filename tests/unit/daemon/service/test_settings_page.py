"""docs/settings.md shows a file that is accepted as it stands and holds every setting there is."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from lodger_daemon.service.settings import Settings, parse_settings

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "settings.md").read_text()
FILE = "\n".join(re.findall(r"^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL))


def sections_of(annotation: Any) -> list[type[BaseModel]]:
    """The sections a field's type is made of: itself, or what its container holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in get_args(annotation) for found in sections_of(argument)]


def missing(model: type[BaseModel], shown: Any, path: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = field.alias or name
        if not isinstance(shown, dict) or key not in shown:
            yield f"{path}{key}"
            continue
        for section in sections_of(field.annotation):
            # A table of tables under names of the person's own: one of them has to show every key.
            own = shown[key] if set(shown[key]) & set(section.model_fields) else next(iter(shown[key].values()))
            yield from missing(section, own, f"{path}{key}.")


def test_the_file_on_the_page_is_accepted_as_it_stands() -> None:
    parse_settings(FILE.encode(), "docs/settings.md")


def test_every_setting_stands_on_the_page() -> None:
    assert list(missing(Settings, tomllib.loads(FILE))) == []
