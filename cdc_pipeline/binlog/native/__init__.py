"""Native code and memory: compiling, checksums, inflating, buffers."""
