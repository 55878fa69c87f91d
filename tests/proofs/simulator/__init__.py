"""A simulator: the real functions of admission, settlement and sweeping, between whose store calls anything may happen.

One process plays all workers and settlers, on a real PostgreSQL and a real Valkey of its own. Every task pauses before
each call of a store, so a seeded scheduler decides which task goes on, which process dies there, and which call fails.
"""
