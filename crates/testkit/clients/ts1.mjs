// The official TypeScript SDK 1 (`@modelcontextprotocol/sdk`) against one fixture server. It knows
// the handshake only. See `checks.mjs` for what is checked and the arguments.

import { answers, check, connection, installed, parseArguments } from './checks.mjs';

const { Client } = installed('@modelcontextprotocol/sdk/client/index.js');
const { SSEClientTransport } = installed('@modelcontextprotocol/sdk/client/sse.js');
const { StdioClientTransport } = installed('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = installed('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { ElicitRequestSchema } = installed('@modelcontextprotocol/sdk/types.js');

const args = parseArguments();
const { asked, answer } = answers();

const client = new Client({ name: 'ts1', version: '1.0.0' }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, answer);

const transport = connection(args, {
    Http: StreamableHTTPClientTransport,
    Sse: SSEClientTransport,
    Stdio: StdioClientTransport,
});

// The SDK always offers its newest version and takes any older one in answer; this makes it offer the
// older one, and notes what came of it.
let version;
const { send } = transport;
transport.send = (message, options) => {
    if (message.method === 'initialize') message.params.protocolVersion = args.protocol;
    return send.call(transport, message, options);
};
const setProtocolVersion = transport.setProtocolVersion;
transport.setProtocolVersion = (negotiated) => {
    version = negotiated;
    setProtocolVersion?.call(transport, negotiated);
};

await client.connect(transport);
const listTools = () => client.listTools();
const callTool = (params, options) => client.callTool(params, undefined, options);
await check(args, { listTools, callTool }, version, asked);
await client.close();
