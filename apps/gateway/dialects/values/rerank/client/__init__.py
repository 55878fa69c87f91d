"""Client side of reranking: reads requests in the words of Cohere, Jina and Voyage, writes rankings."""
