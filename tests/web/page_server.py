"""Serves the playground's files as a text tier does, in front of an API that a test scripts."""

import http.server
import json
import pathlib
import re
import threading

FOLDER = pathlib.Path(__file__).parent.parent.parent / "services/text/web"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def _policy():
    """The Content-Security-Policy that goes out with the files."""
    declaration = re.search(r"kWebContentSecurityPolicy =(.*?);\n\n", (FOLDER / "files.h").read_text("utf-8"), re.DOTALL)
    return "".join(re.findall(r'"([^"]*)"', declaration[1]))


class PageServer:
    """On a free port of loopback while the context lasts.

    key: that requests have to bring; '': none. posts: what came, as (path, headers, body). answers: for each POST the next
    one: (status, headers, body), or a list of chunks of an answer that is streamed; None among them cuts the connection, once `cut` is set.
    """

    def __init__(self):
        self.key = ""
        self.posts = []
        self.answers = []
        self.cut = threading.Event()
        self._policy = _policy()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self.cut.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def reply(self, status, body, kind="application/json", headers=()):
                self.send_response(status)
                for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))),
                                    ("Content-Security-Policy", outer._policy), *headers):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def is_refused(self):
                if outer.key == "" or self.headers.get("Authorization") == f"Bearer {outer.key}":
                    return False
                self.reply(401, b'{"error": {"message": "no valid API key"}}')
                return True

            def do_GET(self):
                if self.path == "/v1/models":
                    if not self.is_refused():
                        self.reply(200, json.dumps({"data": [{"id": "m"}]}).encode())
                    return
                file = FOLDER / ("index.html" if self.path == "/" else pathlib.PurePosixPath(self.path).name)
                if file.suffix in TYPES and file.is_file():
                    self.reply(200, file.read_bytes(), f"{TYPES[file.suffix]}; charset=utf-8")
                else:
                    self.reply(404, b"{}")

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.is_refused():
                    return
                outer.posts.append((self.path, dict(self.headers), body.decode()))
                answer = outer.answers.pop(0)
                if isinstance(answer, tuple):
                    status, headers, body = answer
                    self.reply(status, body.encode(), headers=headers.items())
                else:
                    self.stream(answer)

            def stream(self, chunks):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for chunk in chunks:
                    if chunk is None:
                        outer.cut.wait()
                        self.close_connection = True
                        return
                    data = f"data: {chunk}\n\n".encode()
                    self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *arguments):
                pass

        return Handler
