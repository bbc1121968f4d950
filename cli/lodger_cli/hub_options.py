"""How a hub can be reached: the options that every command which starts one has, in one place."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer


@dataclass(frozen=True, slots=True)
class HubReach:
    """Empty strings and -1 mean: not given."""

    lan: bool
    lan_port: int
    tls_cert: str
    tls_key: str
    public_url: str
    public_name: list[str]
    trusted_proxy: list[str]


def _options(
    lan: Annotated[bool, typer.Option("--lan", help="Also listen with TLS for phones in this network.")] = False,
    lan_port: Annotated[
        int,
        typer.Option(metavar="PORT", show_default=False, help="The port of --lan; without it the one behind --port."),
    ] = -1,
    tls_cert: Annotated[
        str, typer.Option(metavar="FILE", help="A certificate chain in PEM; with --lan instead of one made here.")
    ] = "",
    tls_key: Annotated[str, typer.Option(metavar="FILE", help="Its key in PEM.")] = "",
    public_url: Annotated[
        str, typer.Option(metavar="URL", help="Where a proxy with a certificate shows this hub.")
    ] = "",
    public_name: Annotated[
        list[str], typer.Option(metavar="NAME", help="A host name under which the hub is reached; may be repeated.")
    ] = [],  # noqa: B006 - typer's way to say "none", and it is only read
    trusted_proxy: Annotated[
        list[str],
        typer.Option(
            metavar="NETWORK",
            help="With --public-url: a proxy on another machine, whose word on callers' addresses counts.",
        ),
    ] = [],  # noqa: B006 - as above
) -> None:
    """Only its signature is used."""


_OPTIONS: Final = inspect.signature(_options).parameters


def with_hub_reach(command: Callable[..., None]) -> Callable[..., None]:
    """Put these options in place of a command's parameter `reach`, which gets what was typed."""

    @functools.wraps(command)
    def run(**given: Any) -> None:
        reach = HubReach(**{name: given.pop(name) for name in _OPTIONS})
        command(**given, reach=reach)

    own = inspect.signature(command).parameters.values()
    # By keyword, so that an option with a default may stand before one without.
    every = [one for mine in own for one in (_OPTIONS.values() if mine.name == "reach" else (mine,))]
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in every]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what `signature` looks at first
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run
