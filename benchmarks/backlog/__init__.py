"""What a terabyte of unread journals costs: to plan a run over it, and to catch up."""
