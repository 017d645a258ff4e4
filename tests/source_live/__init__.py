"""The live source against real servers."""
