"""The fixture of `tests/it/servers.rs`, written with the official Python SDK 1 (`mcp` on PyPI).

It knows the handshake only, and is the only SDK with a WebSocket.

    python1.py stdio|http|plain|sse|ws

Over HTTP the address is printed on stderr once the server listens.
"""

import sys

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.websocket import websocket_server
from mcp.types import Completion, ListToolsRequest, ListToolsResult, SamplingMessage, TextContent
from shared import Name, listen, page, register, subscribed, tell_of_changes
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

plain = sys.argv[1] == "plain"
server = FastMCP(
    "official", instructions="for tests", log_level="ERROR", stateless_http=plain, json_response=plain
)
lower = server._mcp_server
lower.version = "1.2.3"
register(server, Context, ToolError, Completion)


@server.tool()
async def log(ctx: Context) -> str:
    await ctx.session.send_log_message("warning", {"careful": True}, "desk", related_request_id=ctx.request_id)
    return "done"


@server.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("who are you?", Name)
    return f"hello {answer.data.name}"


@server.tool()
async def sample(ctx: Context) -> str:
    question = SamplingMessage(role="user", content=TextContent(type="text", text="the capital?"))
    answer = await ctx.session.create_message([question], max_tokens=10)
    return answer.content.text


@server.tool()
async def roots(ctx: Context) -> str:
    found = await ctx.session.list_roots()
    return " ".join(str(root.uri) for root in found.roots)


@server.tool()
async def change(ctx: Context) -> str:
    await tell_of_changes(ctx.session)
    return "done"


# What the SDK leaves to its lower level: pages, subscriptions, the level, and that lists change.


@lower.list_tools()
async def list_tools(request: ListToolsRequest) -> ListToolsResult:
    # The SDK looks at the annotation, and passes nothing when it wants the list for itself.
    cursor = request.params.cursor if request and request.params else None
    tools, more = page(await server.list_tools(), cursor)
    return ListToolsResult(tools=tools, nextCursor=more)


@lower.subscribe_resource()
async def subscribe(uri) -> None:
    subscribed.add(str(uri))


@lower.unsubscribe_resource()
async def unsubscribe(uri) -> None:
    subscribed.discard(str(uri))


@lower.set_logging_level()
async def set_level(level) -> None: ...


lower.notification_options = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


async def websocket(socket) -> None:
    async with websocket_server(socket.scope, socket.receive, socket.send) as (read, write):
        await lower.run(read, write, lower.create_initialization_options())


match sys.argv[1]:
    case "stdio":
        server.run("stdio")
    case "http" | "plain":
        anyio.run(listen, server.streamable_http_app(), "/mcp")
    case "sse":
        anyio.run(listen, server.sse_app(), "/sse")
    case "ws":
        anyio.run(listen, Starlette(routes=[WebSocketRoute("/ws", websocket)]), "/ws", "ws")
