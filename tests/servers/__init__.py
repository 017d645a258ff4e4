"""Real servers for the tests: see README.md in this folder."""

from tests.servers.installation import FLAVORS, Flavor, Installation, find_installation
from tests.servers.server import Server

__all__ = ["FLAVORS", "Flavor", "Installation", "Server", "find_installation"]
