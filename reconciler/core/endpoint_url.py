"""Addresses of services: which are this machine, and which an endpoint may be."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

_WANTED = "write a URL such as https://modelarts.example.com"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: `localhost`, any name below it, or a loopback address."""
    import ipaddress

    name = host.lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def holds_credentials(endpoint: str) -> bool:
    """Whether an endpoint has a user or a password in it, or looks as if it had."""
    return "@" in endpoint


def _split(endpoint: str) -> SplitResult | None:
    """The parts of a URL; None if it is none that a service could have."""
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    is_plain = endpoint.isascii() and endpoint.isprintable() and " " not in endpoint
    return parts if host and is_plain and parts.scheme in ("http", "https") else None


def endpoint_problem(endpoint: str, insecure: bool, *, takes_path: bool = False) -> tuple[str, str] | None:
    """Say why an address must not be used, and what to do; None if it may be.

    The words never hold the address itself, which may hold a secret. `insecure` allows plain http to
    other machines; `takes_path` is for a URL that is no endpoint, such as OS_AUTH_URL.
    """
    endpoint = endpoint.strip()
    if holds_credentials(endpoint):
        return "the endpoint contains a user name or password", "set credentials in the environment"
    parts = _split(endpoint)
    if parts is None:
        return "the endpoint is not a valid URL", _WANTED
    host = parts.hostname or ""
    if parts.query or parts.fragment or (parts.path.strip("/") and not takes_path):
        return "an endpoint must not have a path, query or fragment", f"write {parts.scheme}://{parts.netloc}"
    if parts.scheme == "http" and not insecure and not is_loopback(host):
        return (
            f"credentials would be sent to {host} unencrypted",
            f"write https://{parts.netloc}, or add insecure: true to the target",
        )
    return None
