"""The provider side of Bedrock's Converse: requests written, answers and failures read."""
