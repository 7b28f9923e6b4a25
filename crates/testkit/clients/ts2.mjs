// The official TypeScript SDK 2 (`@modelcontextprotocol/client`) against one fixture server, in both
// eras. See `checks.mjs` for what is checked and the arguments.

import { answers, check, connection, installed, parseArguments } from './checks.mjs';

const { Client, SSEClientTransport, StreamableHTTPClientTransport, SUPPORTED_PROTOCOL_VERSIONS } =
    installed('@modelcontextprotocol/client');
const { StdioClientTransport } = installed('@modelcontextprotocol/client/stdio');

const args = parseArguments();
const { asked, answer } = answers();

/** The list of handshake versions is the SDK's own; what is not in it is pinned as modern. */
function era() {
    if (args.protocol === 'auto') return { versionNegotiation: { mode: 'auto' } };
    if (SUPPORTED_PROTOCOL_VERSIONS.includes(args.protocol)) return { supportedProtocolVersions: [args.protocol] };
    return { versionNegotiation: { mode: { pin: args.protocol } } };
}

const client = new Client({ name: 'ts2', version: '1.0.0' }, { capabilities: { elicitation: {} }, ...era() });
client.setRequestHandler('elicitation/create', answer);

const transport = connection(args, {
    Http: StreamableHTTPClientTransport,
    Sse: SSEClientTransport,
    Stdio: StdioClientTransport,
});

await client.connect(transport);
await check(args, client, client.getNegotiatedProtocolVersion(), asked);
await client.close();
