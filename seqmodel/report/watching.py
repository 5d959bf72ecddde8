"""The page of runs while they train, served to the browsers of this machine alone."""

from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from seqmodel.errors import SeqmodelError
from seqmodel.report.page.parts import Page
from seqmodel.report.page.render import render
from seqmodel.report.run_page import run_page
from seqmodel.report.subjects import Scored, load_subjects
from seqmodel.runs.folder import METRICS

HERE = "127.0.0.1"


def server_of(runs: Sequence[Path], command: str) -> ThreadingHTTPServer:
    """A server, at a free port, of what training has recorded: nothing is scored or drawn anew."""
    lock, known = Lock(), dict[str, object]()

    def page() -> bytes:
        """The page, made anew if a run has been looked at since."""
        with lock:
            stamps = [_stamp(run / METRICS) for run in runs]
            if known.get("stamps") != stamps:
                known.update(stamps=stamps, page=_page(runs, command))
            return bytes(known["page"])  # type: ignore[call-overload]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A site whose name leads here must not read it.
            if self.headers.get("Host", "").partition(":")[0] not in (HERE, "localhost"):
                return self.send_error(403)
            content = page()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with suppress(OSError):  # a browser that has left
                self.wfile.write(content)
            return None

        def log_message(self, *_: object) -> None:
            """Requests are not news."""

    return ThreadingHTTPServer((HERE, 0), Handler)


def _page(runs: Sequence[Path], command: str) -> bytes:
    try:
        subjects = load_subjects(runs)
    except SeqmodelError as error:  # such as a run before its first epoch
        return render(Page("Not yet", (f"{error}.",)), live=True).encode()
    scored = [Scored(one.name, one.run, one.curve, None, {}) for one in subjects]
    return render(run_page(scored, {}, seed=1, command=command), live=True).encode()


def _stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_mtime_ns, status.st_size
    return None
