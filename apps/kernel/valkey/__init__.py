"""Valkey (Redis): clients for one server, a cluster or sentinels, shards and keys."""
