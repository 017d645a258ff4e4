"""GTID sets of MySQL and MariaDB."""
