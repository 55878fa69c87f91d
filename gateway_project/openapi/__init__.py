"""The document at `/openapi.json` and the page at `/docs`.

Management endpoints are read from their views; the others, which are no views of the REST framework, are kept by hand
in `parts/`. A test holds the document against the map of paths.
"""
