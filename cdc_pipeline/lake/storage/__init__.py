"""Where files lie: disks, object stores, the lock and the lease."""
