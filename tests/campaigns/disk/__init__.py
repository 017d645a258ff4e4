"""What a full disk, a failing disk, a kill and a power cut leave of a lake (K21)."""
