"""The protocol, spoken by the official SDK: the one module that knows it.

Importing it takes a second or so, which only a house pays that is asked for `/mcp` (see `opening.py`).

The protocols up to 2025-11-25 have sessions with an event stream, on which the doorbell rings. 2026-07-28 has none: its
`subscriptions/listen` knows four kinds of change, and no notification of a server's own. So whoever asks which versions there
are is told those with sessions, and comes with one; whoever insists on 2026-07-28 is served all the same, but for the doorbell,
and waits with `claim_next`.

What the SDK logs below an error is what a client did, a line for each request and session: that is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final
from uuid import UUID

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from switchboard import VERSION
from switchboard.http.exchange import Message, Receive, Send
from switchboard.mcp.doorbell import CHANNEL_CAPABILITY
from switchboard.mcp.exchange import EXCHANGE, SESSION_HEADER, McpExchange
from switchboard.mcp.sessions import SESSIONS_MAX
from switchboard.mcp.tools import Tool, Toolbox

_INSTRUCTIONS: Final = (
    "switchboard is a durable work queue. Take work with claim_next (wait_seconds waits for it), keep the lease_token that "
    "comes with each todo, call heartbeat while you work, and end with complete or fail. A todo whose lease lapses is "
    "handed to another. Attached sessions are told of todos that wait."
)

Context = ServerRequestContext[Any, Any]


class Protocol:
    """The SDK's manager of sessions, and what it calls of the house. It can be run once."""

    def __init__(self, *, toolbox: Toolbox, body_bytes_max: int) -> None:
        logging.getLogger("mcp").setLevel(logging.ERROR)
        self._toolbox = toolbox
        server = _Server(
            "switchboard",
            version=VERSION,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        server.add_request_handler("server/discover", types.RequestParams, _discover)
        server.middleware = []  # its tracing, which nobody here reads
        self._manager = StreamableHTTPSessionManager(
            server,
            json_response=True,  # each answer is one body, so that it has arrived or has not (R15)
            session_idle_timeout=None,  # `sessions.py` ends them
            max_sessions=SESSIONS_MAX,
            max_request_body_size=body_bytes_max,
        )

    def run(self) -> AbstractAsyncContextManager[None]:
        """Serves for as long as this block lasts."""
        return self._manager.run()

    async def serve(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serves one request, whose scope holds its exchange."""
        exchange: McpExchange = scope[EXCHANGE]
        scope["user"] = _user(exchange.credential_sha256, exchange.endpoint.id)
        await self._manager.handle_request(scope, receive, send)

    async def discard(self, session_id: str, credential_sha256: bytes, endpoint_id: UUID) -> None:
        """Forgets a session, as its client could have it: by the request that the protocol has for it."""
        scope = {
            "type": "http",
            "method": "DELETE",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(SESSION_HEADER, session_id.encode())],
            "user": _user(credential_sha256, endpoint_id),
        }
        await self._manager.handle_request(scope, _nothing_more, _unheard)

    async def _list_tools(self, context: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        endpoint = _exchange_of(context).endpoint
        listed = [
            types.Tool(
                name=tool.name,
                description=tool.description,
                input_schema=tool.input_schema(endpoint),
                output_schema=tool.output_schema(),
                annotations=_annotations(tool),
            )
            for tool in self._toolbox.permitted(endpoint)
        ]
        return types.ListToolsResult(tools=listed)

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        exchange = _exchange_of(context)
        tool = self._toolbox.find(params.name, exchange.endpoint)
        if tool is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
        problem = await exchange.call(tool)
        if problem is not None:
            return types.CallToolResult(content=[types.TextContent(text=problem)], is_error=True)
        mark = exchange.mark
        return types.CallToolResult(
            content=[types.TextContent(text=mark.text)], structured_content=mark.structured(), is_error=False
        )


class _Server(Server[Any]):
    """The SDK's server. Where a session is opened, it says that it also speaks on Claude Code's channel."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """As the SDK makes them, with the channel."""
        experimental = {**(experimental_capabilities or {}), CHANNEL_CAPABILITY: {}}
        return super().create_initialization_options(notification_options, experimental, extensions)


async def _discover(_context: Context, _params: types.RequestParams) -> types.DiscoverResult:
    return types.DiscoverResult(
        supported_versions=list(HANDSHAKE_PROTOCOL_VERSIONS),
        capabilities=types.ServerCapabilities(tools=types.ToolsCapability()),
        instructions=_INSTRUCTIONS,
    )


def _exchange_of(context: Context) -> McpExchange:
    """The exchange of the request in which this message came."""
    if context.request is None:
        raise RuntimeError("a message came without a request")
    exchange: McpExchange = context.request.scope[EXCHANGE]
    return exchange


def _annotations(tool: Tool) -> types.ToolAnnotations:
    return types.ToolAnnotations(read_only_hint=tool.effect == "reads", destructive_hint=False, open_world_hint=False)


def _user(credential_sha256: bytes, endpoint_id: UUID) -> AuthenticatedUser:
    """To the SDK a session is its credential's. It is given a digest, never the credential (R28)."""
    return AuthenticatedUser(AccessToken(token="", client_id=str(endpoint_id), scopes=[], subject=credential_sha256.hex()))


async def _nothing_more() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unheard(message: Mapping[str, Any]) -> None:
    """Nobody waits for this answer."""
