"""Random workloads with random DDL on real servers, whose lake must equal the server's SELECT at
every cut."""
