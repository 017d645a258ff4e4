"""What must survive a power cut, and for how long the past is kept."""
