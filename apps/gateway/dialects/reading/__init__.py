"""Reading what comes in: fields of client requests, providers' answers, counts, media types."""
