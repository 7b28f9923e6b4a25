"""The fixture of `tests/it/servers.rs`, written with the official Python SDK 2 (`mcp` on PyPI).

    python.py stdio|http|plain|sse

Over HTTP the address is printed on stderr once the server listens.
"""

import os
import socket
import sys
from typing import Annotated

import anyio
import uvicorn
from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    Completion,
    CreateMessageResult,
    EmptyResult,
    ListRootsResult,
    ListToolsResult,
    PaginatedRequestParams,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    UnsubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

PAGE = 4

server = MCPServer("official", version="1.2.3", instructions="for tests", log_level="ERROR")
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
    await ctx.log("warning", {"careful": True}, logger_name="desk")
    return "done"


def who() -> Elicit[Name]:
    return Elicit("who are you?", Name)


@server.tool()
def ask(name: Annotated[Name, Resolve(who)]) -> str:
    return f"hello {name.name}"


def capital() -> Sample:
    question = SamplingMessage(role="user", content=TextContent(type="text", text="the capital?"))
    return Sample([question], max_tokens=10)


@server.tool()
def sample(answer: Annotated[CreateMessageResult, Resolve(capital)]) -> str:
    return answer.content.text


def where() -> ListRoots:
    return ListRoots()


@server.tool()
def roots(found: Annotated[ListRootsResult, Resolve(where)]) -> str:
    return " ".join(str(root.uri) for root in found.roots)


@server.tool()
async def change(ctx: Context) -> str:
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        await ctx.notify_tools_changed()
        await ctx.notify_prompts_changed()
        await ctx.notify_resources_changed()
        await ctx.notify_resource_updated("test://one")
    else:
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


# What the SDK leaves to its lower level: pages, subscriptions and the level of the handshake era.


async def list_tools(ctx, params: PaginatedRequestParams | None) -> ListToolsResult:
    tools = await server.list_tools()
    try:
        start = int(params.cursor) if params and params.cursor else 0
    except ValueError:
        raise MCPError(INVALID_PARAMS, "no such cursor")
    more = str(start + PAGE) if start + PAGE < len(tools) else None
    return ListToolsResult(tools=tools[start : start + PAGE], next_cursor=more)


async def subscribe(ctx, params: SubscribeRequestParams) -> EmptyResult:
    subscribed.add(str(params.uri))
    return EmptyResult()


async def unsubscribe(ctx, params: UnsubscribeRequestParams) -> EmptyResult:
    subscribed.discard(str(params.uri))
    return EmptyResult()


async def set_level(ctx, params: SetLevelRequestParams) -> EmptyResult:
    return EmptyResult()


lower = server._lowlevel_server
lower.add_request_handler("tools/list", PaginatedRequestParams, list_tools)
lower.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
lower.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)
lower.add_request_handler("logging/setLevel", SetLevelRequestParams, set_level)


async def listen(app, path: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}{path}", file=sys.stderr, flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve(sockets=[listener])


match sys.argv[1]:
    case "stdio":
        server.run("stdio")
    case "http":
        anyio.run(listen, server.streamable_http_app(), "/mcp")
    case "plain":
        anyio.run(listen, server.streamable_http_app(stateless_http=True, json_response=True), "/mcp")
    case "sse":
        anyio.run(listen, server.sse_app(), "/sse")
