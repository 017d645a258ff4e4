"""Jobs, schedules and sensors beside the captures: checks, plans, maintenance, alerts."""
