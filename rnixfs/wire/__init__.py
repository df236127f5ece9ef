"""Wire formats of model providers: pure functions from requests to bytes and from bytes to answers."""
