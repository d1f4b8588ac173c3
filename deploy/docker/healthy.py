"""Exit code 0 if the service in this container answers /health with 200. Asked every few seconds, so it imports next to nothing.

A token that stands in the environment is sent. One that stands in a file is not known here: who is asked for it has reached a service.
"""

import os
import socket
import sys

port, token = int(os.environ.get("MILLRACE_HEALTH_PORT", "8080")), os.environ.get("MILLRACE_METRICS_TOKEN", "")
with socket.create_connection(("127.0.0.1", port), timeout=3) as connection:
    connection.sendall(f"GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    answer = connection.recv(64)
    sys.exit(not (b" 200 " in answer or (b" 401 " in answer and not token)))
