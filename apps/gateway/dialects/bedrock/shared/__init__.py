"""What both sides of Bedrock's Converse share: names on the wire and usage."""
