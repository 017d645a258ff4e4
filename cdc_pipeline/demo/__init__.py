"""The recorded shop: journals of a real MySQL server, and that server's own query results.

``shop/journals/``         binlog.00000N, as the server wrote them
``shop/expected/``         every table's rows at the log's end: gzipped JSON lines, a file a table
``shop/expected_middle/``  the same at a transaction boundary in the middle of the log
``shop/recording.json``    where the middle and the end are, and what the recorder did

A file of expected rows begins with ``{"table", "columns": [{"name", "type", "select"}], "key"}``;
every further line is one row: a list of the texts that the server printed for each column's
`select` expression, or null. Rows are in key order. `python -m tools.record_demo` makes a new
recording.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

SHOP_DIRECTORY: Final = Path(__file__).parent / "shop"
SOURCE: Final = "shop"  # of the demo's pipeline
