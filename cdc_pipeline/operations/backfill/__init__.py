"""Bring old journals into a lake: in parallel, by range, over a gap."""
