"""What people do beside running: snapshot, backfill, verify, doctor, inspect, cursor."""
