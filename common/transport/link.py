"""The ZeroMQ link between a device and its cloud.

    handler = ...                                     # see `Handler`
    with DeviceLink("tcp://127.0.0.1:7500", None, handler) as link:
        link.send(hello)                              # from any thread

`start()` (or `with`) starts the thread, so that a handler can be told of its link before it is called.
"""

from common.transport.address import TransportError, require_safe
from common.transport.cloud_link import CloudLink
from common.transport.counters import CountersSnapshot, Flow
from common.transport.device_link import DeviceLink
from common.transport.interface import Handler, LinkStatus, Peer
from common.transport.limits import Limits

__all__ = [
    "CloudLink",
    "CountersSnapshot",
    "DeviceLink",
    "Flow",
    "Handler",
    "Limits",
    "LinkStatus",
    "Peer",
    "TransportError",
    "require_safe",
]
