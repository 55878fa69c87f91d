"""What things cost and who owes what: prices times usage, ledger, transactions, reservations."""
