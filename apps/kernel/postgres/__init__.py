"""PostgreSQL: connections, replicas, timeouts, locks, arrays."""
