"""Real MCP servers, from their own packages, on a real mount."""
