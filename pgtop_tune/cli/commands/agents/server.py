"""`pgtop-tune mcp`: the server of the Model Context Protocol, through its SDK, which is an extra."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

from pgtop_tune import __version__
from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.safe_text import printable_lines
from pgtop_tune.cli.commands.agents import McpRequest
from pgtop_tune.cli.commands.agents.tools import DATA, TOOLS, Tools, description_of, schema_of
from pgtop_tune.cli.exit_codes import Terminated
from pgtop_tune.cli.output import PROGRAM, tell
from pgtop_tune.recording.blocks import keeps_index

_LONGEST: Final = 1 << 20
"""Most bytes of a request."""
_INSTRUCTIONS: Final = f"Read-only views of a PostgreSQL server, its machine, and recordings of both. {DATA}"


def run_server(request: McpRequest) -> None:
    """Serve a client until it closes our stdin.

    Raises:
        UsageProblem: The SDK is not installed, or an option is wrong.
        OSError: The client reads no more.
    """
    if sys.stdin.isatty():
        raise UsageProblem(
            "stdin is a terminal: an agent's client starts `pgtop-tune mcp`", "`pgtop-tune help agents` shows how"
        )
    # Before the threads of the SDK: it resolves the address in a fork.
    tools = Tools(request)
    try:
        import mcp.server.stdio
        import mcp_types
    except ImportError:
        raise UsageProblem(
            "`pgtop-tune mcp` needs mcp 2.3 or newer, which is not installed", "run pip install 'mcp>=2.3,<3'"
        ) from None
    from mcp.server import Server, ServerRequestContext

    async def listed(
        context: ServerRequestContext, page: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        hints = mcp_types.ToolAnnotations(read_only_hint=True, destructive_hint=False)
        rows = [
            mcp_types.Tool(name=name, description=description_of(kind), input_schema=schema_of(kind), annotations=hints)
            for name, (kind, _) in TOOLS.items()
        ]
        return mcp_types.ListToolsResult(tools=rows)

    async def called(context: ServerRequestContext, call: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        try:
            text, failed = await tools.answer(call.name, call.arguments or {}), False
        except PgtopError as problem:
            text, failed = "\n".join(printable_lines(str(problem))), True
        except Terminated as signalled:
            # Raised within the SDK's tasks, it would be printed with a traceback.
            ends.append(signalled)
            serving[0].cancel()
            text, failed = "stopped by a signal", True
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(text=text)], is_error=failed)

    ends: list[Terminated] = []
    serving: list[asyncio.Task[Any]] = []

    async def serve() -> None:
        serving.extend(task for task in (asyncio.current_task(),) if task is not None)
        server = Server(
            PROGRAM, version=__version__, instructions=_INSTRUCTIONS, on_list_tools=listed, on_call_tool=called
        )
        requests: Any = await _requests()
        async with mcp.server.stdio.stdio_server(stdin=requests) as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    keeps_index.set(False)
    try:
        asyncio.run(serve())
    except asyncio.CancelledError:
        if not ends:
            raise
    except BaseExceptionGroup as failures:
        _, other_failures = failures.split(OSError)
        if other_failures is not None:
            raise
        raise _first(failures) from None
    if ends:
        raise ends[0]


def _first(failure: BaseException) -> BaseException:
    """Return the first failure of nested groups."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


async def _requests() -> AsyncIterator[bytes] | None:
    """Return the lines of stdin, if it is a pipe or a socket; None leaves another file to the SDK.

    The SDK reads in a thread, which a signal does not end. Children get an empty stdin.
    """
    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return None
    pipe = os.fdopen(os.dup(0), "rb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    reader = asyncio.StreamReader(_LONGEST)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return _lines(reader)


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines; a longer one than `_LONGEST` is dropped, and the SDK gets an empty one in its place."""
    is_rest = False
    while True:
        try:
            line = await reader.readuntil()
        except asyncio.LimitOverrunError as over:
            await reader.readexactly(over.consumed)
            is_rest = True
            continue
        except asyncio.IncompleteReadError as ended:
            line = ended.partial
            if not line:
                return
        if is_rest:
            tell(f"a request of more than {_LONGEST >> 20} MB was dropped")
        yield b"" if is_rest else line
        is_rest = False
