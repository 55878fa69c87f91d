"""Bedrock Converse, provider side: writes requests, reads answers and failures."""
