"""What the commands share: options, access to a source, output, progress."""
