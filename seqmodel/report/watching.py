"""The page of runs while they train, served only to browsers on this machine."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from seqmodel.errors import SeqmodelError
from seqmodel.report.page.parts import Page, render
from seqmodel.report.run_page import run_page
from seqmodel.report.subjects import subject_of, unique_names
from seqmodel.runs.folder import BEST, CONFIG, LAST, METRICS, load_run

LOOPBACK = "127.0.0.1"


def make_server(
    runs: Sequence[Path], command: str, report: Callable[[str], None]
) -> ThreadingHTTPServer:
    """A server, at a free port, of what training has recorded: nothing is scored or drawn anew.

    Reasons for not showing a run, such as no complete epoch, are reported once each.
    """
    runs = [*{run.resolve(): run for run in runs}.values()]
    lock, cached, reported = Lock(), dict[tuple[object, ...], bytes](), set[str]()

    def report_once(news: str) -> None:
        if news not in reported:
            reported.add(news)
            report(news)

    def page() -> bytes:
        """The page, rebuilt if a run has been written to since, or is not shown."""
        with lock:
            names = ("", CONFIG, METRICS, BEST, LAST)  # "": the run itself, which may be a zip
            stamps = tuple(_stamp(run / name) for run in runs for name in names)
            if stamps in cached:
                return cached[stamps]
            shown, missing = _page(runs, command)
            content = render(shown, live=True).encode()
            cached.clear()
            if not missing:
                cached[stamps] = content
            for error in missing:
                report_once(f"not shown: {error}")
            return content

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            error = sys.exception()
            if not isinstance(error, ConnectionError):  # the browser has left
                report_once(f"the page could not be made: {error!r}")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A site whose name resolves to this machine must not read it.
            if self.headers.get("Host", "").partition(":")[0] not in (LOOPBACK, "localhost"):
                return self.send_error(403)
            content = page()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return None

        def log_message(self, *_: object) -> None:
            """Do not log requests."""

    page()
    return Server((LOOPBACK, 0), Handler)


def _page(runs: Sequence[Path], command: str) -> tuple[Page, list[str]]:
    """The page of the runs that can be loaded, and why others cannot, which it also shows."""
    shown, missing = [], []
    for run, name in zip(runs, unique_names(runs), strict=True):
        try:
            shown.append(subject_of(load_run(run), name))
        except SeqmodelError as error:
            missing.append(str(error))
    page = run_page(shown, {}, seed=1, command=command) if shown else Page("No run to show")
    return replace(page, lead=(*page.lead, *(f"{error}." for error in missing))), missing


def _stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    return None
