"""Real servers for the tests: see README.md in this folder."""

from tests.servers.at_rest import at_rest
from tests.servers.forwarder import Forwarder
from tests.servers.installation import FLAVORS, Flavor, Installation, find_installation
from tests.servers.pair import ReplicaPair
from tests.servers.server import Server

__all__ = [
    "FLAVORS",
    "Flavor",
    "Forwarder",
    "Installation",
    "ReplicaPair",
    "Server",
    "at_rest",
    "find_installation",
]
