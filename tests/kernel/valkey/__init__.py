"""Tests of the client of Valkey, its cluster and its shards."""
