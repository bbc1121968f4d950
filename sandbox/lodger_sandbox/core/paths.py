"""Paths compared component by component, never as strings, so that /srv/app-secret is not inside /srv/app."""

from pathlib import PurePosixPath


def is_within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies below it. Both absolute and already free of links."""
    return PurePosixPath(path).is_relative_to(folder)


def is_clean(path: str) -> bool:
    """Absolute and without `..`, `.`, doubled or trailing slashes or NUL: what a mount table may hold."""
    return (
        path.startswith("/") and "\0" not in path and str(PurePosixPath(path)) == path and ".." not in path.split("/")
    )


def moved(path: str, source: str, target: str) -> str:
    """Where `path`, which lies in `source`, is seen when `source` is shown at `target`."""
    return str(PurePosixPath(target) / PurePosixPath(path).relative_to(source))


def depth(path: str) -> int:
    return len(PurePosixPath(path).parts)
