"""The built page as the hub serves it."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from lodger_hub.errors import RequestRefused
from lodger_hub.pages.site import CONTENT_POLICY, FOR_EVER, Site
from support.hub_calls import http_of
from support.hub_rig import running_hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    page = tmp_path / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text("<!doctype html><title>Lodger</title>")
    (page / "sw.js").write_text("self")
    (page / "app.webmanifest").write_text("{}")
    (page / "assets" / "index-Bx3_k9Qa.js").write_text("x")
    (page / "assets" / "index-Bx3_k9Qa.css").write_text("x")
    (page / "assets" / "logo.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text("secret")
    (page / "link.txt").symlink_to(tmp_path / "secret.txt")
    return page


@pytest.fixture
async def http(folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    site = Site(folder)

    async def page(request):  # type: ignore[no-untyped-def] # starlette's own signature
        try:
            return await site.page(request)
        except RequestRefused as error:
            return httpx_refusal(error)

    app = Starlette(routes=[Route("/", page), Route("/{path:path}", page)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://hub") as http:
        yield http


def httpx_refusal(error: RequestRefused):  # type: ignore[no-untyped-def] # a starlette response
    from lodger_hub.access.gate import refusal

    return refusal(error)


async def test_each_file_has_its_type_and_its_caching(http: httpx.AsyncClient) -> None:
    for path, media_type, cache in (
        ("/", "text/html; charset=utf-8", "no-cache"),
        ("/index.html", "text/html; charset=utf-8", "no-cache"),
        ("/sw.js", "text/javascript; charset=utf-8", "no-cache"),
        ("/app.webmanifest", "application/manifest+json", "no-cache"),
        ("/assets/index-Bx3_k9Qa.js", "text/javascript; charset=utf-8", FOR_EVER),
        ("/assets/index-Bx3_k9Qa.css", "text/css; charset=utf-8", FOR_EVER),
        ("/assets/logo.svg", "image/svg+xml", "no-cache"),
    ):
        response = await http.get(path)
        found = (response.status_code, response.headers["content-type"], response.headers["cache-control"])
        assert found == (200, media_type, cache), path
        assert response.headers["content-security-policy"] == CONTENT_POLICY
        again = await http.get(path, headers={"If-None-Match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_an_unknown_path_is_the_page_and_an_unknown_file_is_not(http: httpx.AsyncClient) -> None:
    for path in ("/machines/m1", "/a/b/c", "/link", "/assets"):
        assert "<title>Lodger" in (await http.get(path)).text
    for path in ("/missing.js", "/assets/gone-12345678.css", "/link.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt"):
        response = await http.get(path)
        assert response.status_code == 404, path
        assert "secret" not in response.text


def test_the_policy_lets_nothing_foreign_or_inline_run() -> None:
    rules = {rule.split()[0]: rule.split()[1:] for rule in CONTENT_POLICY.split(";")}
    assert rules["default-src"] == rules["script-src"] == rules["connect-src"] == rules["style-src"] == ["'self'"]
    assert rules["frame-ancestors"] == rules["object-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    assert "unsafe" not in CONTENT_POLICY
    assert "http" not in CONTENT_POLICY
    assert "*" not in CONTENT_POLICY


async def test_without_a_built_page_a_line_says_so(tmp_path: Path) -> None:
    site = Site(tmp_path / "nothing")
    app = Starlette(routes=[Route("/", site.page)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://hub") as http:
        response = await http.get("/")
    assert (response.status_code, response.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert "has not been built" in response.text


async def test_the_hub_serves_the_page_to_anybody_and_the_api_to_nobody(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub, http_of(hub) as http:
        page = await http.get("/machines/one")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers.get_list("content-security-policy") == [CONTENT_POLICY]
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["x-frame-options"] == "DENY"
        for path in ("/v1", "/v1/", "/v1/nothing", "/v1/pages/x.js"):
            response = await http.get(path)
            assert (response.status_code, response.headers["content-type"]) == (404, "application/json")
        assert (await http.get("/v1/agents")).status_code == 401
        assert (await http.post("/machines")).status_code == 405
