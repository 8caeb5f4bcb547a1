"""Who can read, on the way, what clients and nodes say to one another?"""

from __future__ import annotations

from collections.abc import Iterator

from .facts import FleetFacts, on_nodes
from .findings import ERROR, WARNING, Check, Trouble

SOON = 30 * 86400.0


def encryption(fleet: FleetFacts) -> Iterator[Trouble]:
    for node in fleet.nodes:
        way = node.transport
        if way is None:
            continue
        if not way.tls and not way.local:
            yield Trouble(
                WARNING,
                node.node,
                "is reached in plain text over a network: whoever listens there reads the password, and tokens",
                "use rediss:// and a server with TLS, or a network that is encrypted or nobody else's",
            )
        if way.tls and not way.verified:
            yield Trouble(
                WARNING,
                node.node,
                "is reached over TLS, but its certificate is not checked: anybody in between can pose as it",
                "leave out ssl_cert_reqs=none, and name the authority: ?ssl_ca_certs=FILE",
            )
        if way.expires_in is not None and way.expires_in < SOON:
            days = way.expires_in / 86400
            yield Trouble(
                ERROR if days < 3 else WARNING,
                node.node,
                f"has a certificate that is valid for {days:.1f} days more: then it cannot be reached",
                "renew the certificate",
            )


CHECKS = (
    Check(
        "encryption",
        encryption,
        "nothing is said in plain text beyond this machine",
        on_nodes(lambda node: node.transport),
    ),
)
