"""Backfills: old journals into a lake of their own, tables made anew from history, journals decoded in parallel."""
