"""Mutation testing of the code that moves money: small faults are put in, one at a time, and tests must notice them.

All faults of a module are compiled into it at once, each behind a switch (`switches.py`), so one warm process tries
them one after the other on one prepared database, and each with those tests alone that reach it.
"""
