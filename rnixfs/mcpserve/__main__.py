"""The entry of `python -m rnixfs.mcpserve`."""

from rnixfs.mcpserve.program import leave

if __name__ == "__main__":
    leave()
