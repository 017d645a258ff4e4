"""Storage of files: disks, object stores, the lock and the lease."""
