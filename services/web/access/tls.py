"""Takes up the next certificate while the service runs."""

from __future__ import annotations

import threading

import structlog

from millrace.io.http.server import CannotListen, HttpServer

LOOK_S = 1.0

log = structlog.get_logger("web")


def keep_renewed(server: HttpServer, stopping: threading.Event) -> None:
    """Lets the server read its certificate again whenever it changes, until the process is asked to stop. In a thread of its own: what
    else the process does may take minutes."""

    def look() -> None:
        while not stopping.wait(LOOK_S):
            try:
                if server.renew_certificate():
                    log.info("the certificate was read again")
            except CannotListen as failure:
                log.error("the certificate is still the one before", reason=str(failure))

    threading.Thread(target=look, name="certificate", daemon=True).start()
