"""Native code: compiling, checksums, inflating, buffers."""
