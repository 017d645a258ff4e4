"""Delta tables as files and commits: logs, data files, deletion vectors."""
