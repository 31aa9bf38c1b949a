"""Receive one notification on this machine: its text goes to received.txt, the URL is in alerts.yaml."""

import json
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Path("received.txt").write_text(f"{message['title']}\n\n{message['message']}\n", encoding="utf-8")
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
server.timeout = 600
Path("alerts.yaml").write_text(f"alerts: json://127.0.0.1:{server.server_port}/\n", encoding="utf-8")
# Runs in the background until a message has been received or ten minutes have passed.
if os.fork() == 0:
    os.setsid()
    for stream in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    server.handle_request()
