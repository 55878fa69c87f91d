"""Settlement: the record of each request on its way to the log and the ledger, exactly once."""
