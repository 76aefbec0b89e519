"""What a load runs on: pgbench's own tables and the bus company's, sized, recognised, made."""
