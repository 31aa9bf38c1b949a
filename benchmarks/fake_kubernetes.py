"""A Kubernetes API server with ConfigMaps, limited to what `kubectl apply` needs.

    python benchmarks/fake_kubernetes.py

It prints its address and serves until it is stopped. Objects are kept in memory; there is no authentication.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_VERBS = ["create", "get", "list", "patch"]
_CONFIG_MAPS = {"name": "configmaps", "singularName": "", "kind": "ConfigMap", "namespaced": True}
#: What kubectl reads before it requests objects.
DISCOVERY: dict[str, dict[str, Any]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [{**_CONFIG_MAPS, "verbs": _VERBS}],
    },
}
_OBJECTS: dict[str, Any] = {}


class _Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet: the client would wait 40 ms for the second

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        found = DISCOVERY.get(path) or _OBJECTS.get(path)
        missing = {"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404}
        self._answer(200 if found else 404, found or missing)

    def do_POST(self) -> None:
        made = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        _OBJECTS[f"{self.path.partition('?')[0]}/{made['metadata']['name']}"] = made
        self._answer(201, made)

    def _answer(self, status: int, document: Any) -> None:
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()
