"""Addresses of servers, `host:port`; an IPv6 host stands in brackets there, and in URLs."""

from __future__ import annotations

import ipaddress

SHORTEST_TOKEN = 16
"""Characters of a token that guards what other machines can reach."""


def joined(host: str, port: int) -> str:
    """`127.0.0.1:80`, `[::1]:80`. A host that is in brackets already stays as it is."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def parted(address: str) -> tuple[str, int]:
    """Host, without brackets, and port of `host:port`, with or without a scheme and a path. Raises ValueError."""
    rest = address.rpartition("://")[2].partition("/")[0]
    host, _, port = rest.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not host or not port.isdecimal() or int(port) > 65_535 or (":" in host and not bracketed):
        raise ValueError(f"{address!r} is no address: write HOST:PORT, an IPv6 host in brackets, such as [::1]:9092")
    return host[1:-1] if bracketed else host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. A name other than localhost counts as reachable from elsewhere."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
