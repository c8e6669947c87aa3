"""An SQS queue as a URL: by name, ``sqs://bell?region=eu-central-1``, or by its own URL,
``sqs+https://sqs.eu-central-1.amazonaws.com/1234/bell``.

Options: `region`, `endpoint` (of another SQS than Amazon's) and ``create=true``. Credentials never
stand in it: AWS tools find them elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from outlast.errors import InvalidValue
from outlast.queues.sqs.client import check_url
from outlast.queues.sqs.places import sqs_name

OPTIONS = ("region", "endpoint", "create")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class Location(NamedTuple):
    """Where a queue is."""

    queue: str
    url: str | None
    region: str | None
    endpoint: str | None
    create: bool

    @classmethod
    def of(cls, text: str) -> Location:
        """What a URL says; `InvalidValue` or `InvalidId` if it is none of ours."""
        scheme, _, rest = text.partition("://")
        try:
            parts = urlsplit(text)
            pairs = parse_qsl(parts.query, strict_parsing=True) if parts.query else []
        except ValueError:
            raise InvalidValue("the doorbell is not a URL: use sqs://queue?region=…") from None
        given = dict(pairs)
        wrong = sorted(set(given) - set(OPTIONS))
        if wrong or len(pairs) > len(given) or parts.fragment:
            raise InvalidValue(
                f"options of {scheme}:// are {', '.join(OPTIONS)}, each once: {wrong}"
            )
        if "@" in parts.netloc:
            raise InvalidValue(
                "the doorbell carries a user or password: leave them out, AWS takes credentials "
                "from your configuration"
            )
        create = given.get("create", "false")
        if create not in _BOOLEANS:
            raise InvalidValue(f"create={create!r}: use true or false")
        options = given.get("region"), given.get("endpoint"), _BOOLEANS[create]
        if scheme == "sqs":
            if parts.path not in ("", "/"):
                raise InvalidValue(f"{text!r}: use sqs://queue?region=…, or sqs+https://host/…")
            return cls(sqs_name(parts.netloc, fifo=False), None, *options)
        if options[2]:
            raise InvalidValue(f"{scheme}:// names a queue that is there: leave out `create`")
        url = check_url(f"{scheme.removeprefix('sqs+')}://{rest.partition('?')[0]}", "doorbell")
        name = parts.path.rpartition("/")[2]
        return cls(sqs_name(name, fifo=name.endswith(".fifo")), url, *options)
