"""An HTML document that is one file: it loads nothing, and runs no script but its own."""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from seqmodel.report.page.markup import Markup, tag


def document(title: str, body: Markup, *, style: Markup, script: Markup, wasm: bool = False) -> str:
    """The document as text, to be written as UTF-8; the script runs at the end of the body.

    Browsers are told to load nothing and to run no script but this one, identified by its hash, and
    what it compiles of WebAssembly if it has some.
    """
    allowed = f"style-src {_hash(style)}; script-src {_hash(script)}"
    allowed += " 'wasm-unsafe-eval'" if wasm else ""
    policy = f"default-src 'none'; {allowed}; media-src data:; img-src data:"  # level 2
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("link", rel="icon", href="data:,"),  # otherwise browsers request /favicon.ico
        tag("title", title),
        tag("style", style),
    ]
    content = tag("html", tag("head", *head), tag("body", body, tag("script", script)), lang="en")
    return f"<!DOCTYPE html>\n{content}\n"


def common_style() -> Markup:
    """The style of every page."""
    return resource(__package__, "page.css")


def resource(package: str, name: str) -> Markup:
    """A file of a package, trusted and not escaped."""
    return Markup(files(package).joinpath(name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode('ascii')}'"
