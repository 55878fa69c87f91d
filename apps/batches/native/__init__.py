"""Native batches: lines that a provider's own batch API answers, from their handing over to the answer's being here."""
