"""The modes of targets: staged columns and statements of each."""
