"""The official Python SDK (`mcp` on PyPI) against one fixture server.

Exits 0 when everything held; otherwise the exception on stderr tells what did not.

    python.py --fixture bench|conformance|customers --protocol DATE|auto (--url URL | --sse URL | --command CMD [ARG...])
"""

import argparse
import asyncio
import json

import mcp.client.session
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp_types import CallToolResult, ElicitResult
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS

STRUCTURED_SINCE = "2025-06-18"
ELICITATION_SINCE = "2025-06-18"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixture", choices=["bench", "conformance", "customers"], required=True)
    parser.add_argument("--protocol", required=True)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--url")
    target.add_argument("--sse")
    target.add_argument("--command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def connect(args: argparse.Namespace, answered: list[str]) -> Client:
    async def elicitation(_context, params) -> ElicitResult:
        answered.append(params.message)
        asked = set(params.requested_schema["properties"])
        assert asked == {"username", "email"}, asked
        return ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.com"})

    if args.protocol == "auto" or args.protocol in MODERN_PROTOCOL_VERSIONS:
        mode = args.protocol
    else:
        # The SDK always offers its newest version with a handshake and takes any older one in answer;
        # this makes it offer the older one.
        mcp.client.session.LATEST_HANDSHAKE_VERSION = args.protocol
        mode = "legacy"
    if args.sse:
        target = sse_client(args.sse)
    else:
        target = args.url or StdioServerParameters(command=args.command[0], args=args.command[1:])
    return Client(target, mode=mode, elicitation_callback=elicitation, read_timeout_seconds=20)


async def check(args: argparse.Namespace) -> None:
    answered: list[str] = []
    async with connect(args, answered) as client:
        expected = LATEST_MODERN_VERSION if args.protocol == "auto" else args.protocol
        assert client.protocol_version == expected, client.protocol_version
        names = {tool.name for tool in (await client.list_tools()).tools}
        if args.fixture == "bench":
            assert len(names) == 10, names
            await check_lookup(client)
        elif args.fixture == "customers":
            assert names == {"lookup_customer", "list_customers", "search_customers", "aggregate_customers"}, names
            await check_customers(client)
        else:
            await check_simple_text(client)
            await check_progress(client)
            if client.protocol_version >= ELICITATION_SINCE:
                await check_elicitation(client, answered)
        await check_unknown_tool(client)


async def check_lookup(client: Client) -> None:
    result = await client.call_tool("lookup_customer", {"email": "user42@example.com"})
    assert not result.is_error, result
    record = json.loads(text(result))
    assert record.keys() == {"email", "plan", "signup_date"}, record
    assert record["email"] == "user42@example.com", record
    if client.protocol_version >= STRUCTURED_SINCE:
        assert result.structured_content == record, result


async def check_customers(client: Client) -> None:
    """`examples/customers`: a record, what is wrong with a call, and every row once."""
    structured = client.protocol_version >= STRUCTURED_SINCE

    async def call(name: str, **arguments: object) -> tuple[CallToolResult, dict]:
        result = await client.call_tool(name, arguments)
        return result, result.structured_content if structured else json.loads(text(result))

    result, record = await call("lookup_customer", email="dana@acme.test")
    assert not result.is_error, result
    assert record == {"email": "dana@acme.test", "plan": "emerald", "signup_date": "2026-02-11"}, record
    if structured:
        assert text(result) == "Found customer dana@acme.test on the emerald plan.", result

    result, wrong = await call("lookup_customer")
    assert result.is_error, result
    assert wrong["code"] == "invalid_arguments", wrong
    assert (wrong["field"], wrong["reason"]) == ("email", "missing_required"), wrong
    result, wrong = await call("lookup_customer", email="nobody@acme.test")
    assert result.is_error and wrong["code"] == "not_found", result

    seen: list[str] = []
    sizes: list[int] = []
    more: dict[str, str] = {}
    while True:
        result, page = await call("list_customers", limit=5, **more)
        assert not result.is_error and page["total"] == 12, result
        assert page["truncated"] == ("nextCursor" in page), page
        seen += [item["email"] for item in page["items"]]
        sizes.append(len(page["items"]))
        if "nextCursor" not in page:
            break
        more = {"cursor": page["nextCursor"]}
    assert sizes == [5, 5, 2] and len(set(seen)) == 12, (sizes, seen)
    result, wrong = await call("list_customers", limit=5, cursor="garbled")
    assert result.is_error and wrong["field"] == "cursor", result


async def check_unknown_tool(client: Client) -> None:
    try:
        result = await client.call_tool("no_such_tool", {})
    except MCPError as error:
        assert "no_such_tool" in error.message, error
    else:
        assert result.is_error, result


async def check_simple_text(client: Client) -> None:
    result = await client.call_tool("test_simple_text")
    assert text(result) == "This is a simple text response for testing.", result


async def check_progress(client: Client) -> None:
    seen: list[float] = []

    async def on_progress(progress: float, _total: float | None, _message: str | None) -> None:
        seen.append(progress)

    await client.call_tool("test_tool_with_progress", progress_callback=on_progress)
    assert seen == [0, 50, 100], seen


async def check_elicitation(client: Client, answered: list[str]) -> None:
    result = await client.call_tool("test_elicitation", {"message": "Who are you?"})
    assert answered == ["Who are you?"], answered
    assert not result.is_error and text(result).startswith("User response"), result
    assert "ada" in text(result), result


def text(result: CallToolResult) -> str:
    # Without structured content the data comes behind the words.
    assert len(result.content) in (1, 2), result
    return result.content[-1].text


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(check(arguments()), timeout=60))
