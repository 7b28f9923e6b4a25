"""What the fixtures of both Python SDKs have alike. Which SDK it is, only the file that is run knows: it makes the
server, and hands it in with the classes that are its own."""

import os
import socket
import sys

import anyio
import uvicorn
from pydantic import BaseModel

PAGE = 4

cancelled = anyio.Event()
subscribed: set[str] = set()


class Sum(BaseModel):
    sum: int


class Name(BaseModel):
    name: str


def register(server, Context, ToolError, Completion) -> None:
    """Tools, resources and prompts that are declared in the same words in both."""

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


async def tell_of_changes(session) -> None:
    """In the handshake era, where a session is told of what it subscribed to."""
    await session.send_tool_list_changed()
    await session.send_prompt_list_changed()
    await session.send_resource_list_changed()
    for uri in list(subscribed):
        await session.send_resource_updated(uri)
    subscribed.clear()


def page(tools, cursor: str | None):
    """The tools behind a cursor, and the next one."""
    start = int(cursor) if cursor else 0
    more = str(start + PAGE) if start + PAGE < len(tools) else None
    return tools[start : start + PAGE], more


async def listen(app, path: str, scheme: str = "http") -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}{path}", file=sys.stderr, flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve(sockets=[listener])
