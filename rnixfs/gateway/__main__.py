"""The entry of `python -m rnixfs.gateway`."""

from rnixfs.gateway.server import leave

if __name__ == "__main__":
    leave()
