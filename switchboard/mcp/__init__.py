"""The MCP server at `/mcp`: the agents' calls as tools, and the doorbell as notifications.

The official SDK speaks the protocol; it is imported by `protocol.py` alone, and only once somebody asks for `/mcp`. What a tool
takes and gives never passes through it: arguments are taken out of a request, and the answer is put into the response, as
the very bytes that they are (see `framing.py`).
"""
