"""The fixture of `tests/it/servers.rs`, written with the official Python SDK 2 (`mcp` on PyPI).

    python.py stdio|http|plain|sse

Over HTTP the address is printed on stderr once the server listens.
"""

import sys
from typing import Annotated

import anyio
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
from shared import Name, listen, page, register, subscribed, tell_of_changes

server = MCPServer("official", version="1.2.3", instructions="for tests", log_level="ERROR")
register(server, Context, ToolError, Completion)


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
        await tell_of_changes(ctx.session)
    return "done"


# What the SDK leaves to its lower level: pages, subscriptions and the level of the handshake era.


async def list_tools(ctx, params: PaginatedRequestParams | None) -> ListToolsResult:
    try:
        tools, more = page(await server.list_tools(), params.cursor if params else None)
    except ValueError:
        raise MCPError(INVALID_PARAMS, "no such cursor")
    return ListToolsResult(tools=tools, next_cursor=more)


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


match sys.argv[1]:
    case "stdio":
        server.run("stdio")
    case "http":
        anyio.run(listen, server.streamable_http_app(), "/mcp")
    case "plain":
        anyio.run(listen, server.streamable_http_app(stateless_http=True, json_response=True), "/mcp")
    case "sse":
        anyio.run(listen, server.sse_app(), "/sse")
