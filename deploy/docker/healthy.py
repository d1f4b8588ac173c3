"""Exit code 0 if the service in this container answers /health with 200. Asked every few seconds, so it imports next to nothing."""

import os
import socket
import sys

port = int(os.environ.get("MILLRACE_HEALTH_PORT", "8080"))
with socket.create_connection(("127.0.0.1", port), timeout=3) as connection:
    connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
    sys.exit(b" 200 " not in connection.recv(64))
