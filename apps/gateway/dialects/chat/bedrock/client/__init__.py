"""Bedrock Converse, client side: reads requests, writes answers whole and as event streams."""
