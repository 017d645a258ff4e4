"""Speed of the row decoder: journal in the page cache to Arrow, in CPU-seconds per million rows."""
