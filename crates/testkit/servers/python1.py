"""The fixture of `tests/it/servers.rs`, written with the official Python SDK 1 (`mcp` on PyPI).

It knows the handshake only, and is the only SDK with a WebSocket.

    python1.py stdio|http|plain|sse|ws

Over HTTP the address is printed on stderr once the server listens.
"""

import os
import socket
import sys

import anyio
import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.websocket import websocket_server
from mcp.types import Completion, ListToolsRequest, ListToolsResult, SamplingMessage, TextContent
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

PAGE = 4

plain = sys.argv[1] == "plain"
server = FastMCP(
    "official", instructions="for tests", log_level="ERROR", stateless_http=plain, json_response=plain
)
lower = server._mcp_server
lower.version = "1.2.3"
cancelled = anyio.Event()
subscribed: set[str] = set()


class Sum(BaseModel):
    sum: int


class Name(BaseModel):
    name: str


@server.tool()
def add(a: int, b: int) -> Sum:
    return Sum(sum=a + b)


@server.tool()
def fail() -> str:
    raise ToolError("on purpose")


@server.tool()
async def progress(ctx: Context) -> str:
    for step in range(1, 4):
        await ctx.report_progress(step, 3, f"step {step}")
    return "done"


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
    await ctx.session.send_tool_list_changed()
    await ctx.session.send_prompt_list_changed()
    await ctx.session.send_resource_list_changed()
    for uri in list(subscribed):
        await ctx.session.send_resource_updated(uri)
    subscribed.clear()
    return "done"


@server.tool()
async def wait(ctx: Context) -> str:
    try:
        await ctx.report_progress(1)
        await anyio.sleep_forever()
    finally:
        cancelled.set()


@server.tool()
async def was_cancelled() -> str:
    """Answers once `wait` has been cancelled."""
    global cancelled
    await cancelled.wait()
    cancelled = anyio.Event()
    return "yes"


@server.tool()
async def die() -> str:
    os._exit(7)


@server.resource("test://one", mime_type="text/plain")
def one() -> str:
    return "one"


@server.resource("test://blob", mime_type="application/octet-stream")
def blob() -> bytes:
    return bytes([0, 1, 2])


@server.resource("test://item/{id}", mime_type="text/plain")
def item(id: str) -> str:
    return f"item {id}"


@server.prompt()
def greet(who: str) -> str:
    return f"hello {who}"


@server.completion()
async def complete(ref, argument, context):
    names = ["ada", "alan", "grace"]
    return Completion(values=[name for name in names if name.startswith(argument.value)])


# What the SDK leaves to its lower level: pages, subscriptions, the level, and that lists change.


@lower.list_tools()
async def list_tools(request: ListToolsRequest) -> ListToolsResult:
    # The SDK looks at the annotation, and passes nothing when it wants the list for itself.
    tools = await server.list_tools()
    start = int(request.params.cursor) if request and request.params and request.params.cursor else 0
    more = str(start + PAGE) if start + PAGE < len(tools) else None
    return ListToolsResult(tools=tools[start : start + PAGE], nextCursor=more)


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


async def listen(app, scheme: str, path: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}{path}", file=sys.stderr, flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve(sockets=[listener])


match sys.argv[1]:
    case "stdio":
        server.run("stdio")
    case "http" | "plain":
        anyio.run(listen, server.streamable_http_app(), "http", "/mcp")
    case "sse":
        anyio.run(listen, server.sse_app(), "http", "/sse")
    case "ws":
        anyio.run(listen, Starlette(routes=[WebSocketRoute("/ws", websocket)]), "ws", "/ws")
