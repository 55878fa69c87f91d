"""The whole product as its own processes, used from outside."""
