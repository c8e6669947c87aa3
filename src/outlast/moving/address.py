"""Addresses: how a store is named to others, without what nobody else should know."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def address_of(url: str) -> str:
    """The URL of a store without a password, so that it may be shown and kept."""
    try:
        parts = urlsplit(url)
        if parts.password is None and "password" not in parts.query.lower():
            return url
        user = f"{parts.username}:***@" if parts.username or parts.password else ""
        host = parts.netloc.rpartition("@")[2]
        query = "***" if "password" in parts.query.lower() else parts.query
        return urlunsplit(parts._replace(netloc=user + host, query=query))
    except ValueError:
        return "a URL that cannot be read"
