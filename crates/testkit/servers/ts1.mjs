// The fixture of `tests/it/servers.rs`, written with the official TypeScript SDK 1
// (`@modelcontextprotocol/sdk`). It knows the handshake only.
//
//   ts1.mjs stdio|http|plain|sse
//
// Over HTTP the address is printed on stderr once the server listens.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { randomUUID } from 'node:crypto';

import { greeting, inPages, names, ofSession, question, register, requestedSchema, subscribed, sum, text } from './shared.mjs';

/** The packages installed beside the Node that runs us: this file lies elsewhere. */
const installed = createRequire(process.execPath);
const { McpServer, ResourceTemplate } = installed('@modelcontextprotocol/sdk/server/mcp.js');
const { completable } = installed('@modelcontextprotocol/sdk/server/completable.js');
const { StdioServerTransport } = installed('@modelcontextprotocol/sdk/server/stdio.js');
const { SSEServerTransport } = installed('@modelcontextprotocol/sdk/server/sse.js');
const { StreamableHTTPServerTransport } = installed('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { ListToolsRequestSchema, SubscribeRequestSchema, UnsubscribeRequestSchema } = installed('@modelcontextprotocol/sdk/types.js');
const { z } = installed('zod');

function desk() {
    const server = new McpServer(
        { name: 'official', version: '1.2.3' },
        { instructions: 'for tests', capabilities: { logging: {}, resources: { subscribe: true } } }
    );
    const lower = server.server;

    const inputSchema = { a: z.number().int(), b: z.number().int() };
    server.registerTool('add', { inputSchema, outputSchema: { sum: z.number().int() } }, sum);
    register(server, ResourceTemplate, ({ _meta, sendNotification, signal }) => ({ _meta, notify: sendNotification, signal }));
    server.registerTool('log', {}, async (extra) => {
        await server.sendLoggingMessage({ level: 'warning', logger: 'desk', data: { careful: true } }, extra.sessionId);
        return text('done');
    });
    server.registerTool('ask', {}, async (extra) => {
        const answer = await lower.elicitInput({ message: 'who are you?', requestedSchema }, { relatedRequestId: extra.requestId });
        return text(`hello ${answer.content.name}`);
    });
    // Related to no request: over HTTP the question comes down the stream of its own.
    server.registerTool('sample', {}, async () => {
        const answer = await lower.createMessage({ messages: [question], maxTokens: 10 });
        return text(answer.content.text);
    });
    server.registerTool('roots', {}, async () => text((await lower.listRoots()).roots.map((root) => root.uri).join(' ')));
    server.registerTool('change', {}, async () => {
        server.sendToolListChanged();
        server.sendPromptListChanged();
        server.sendResourceListChanged();
        for (const uri of subscribed) await lower.sendResourceUpdated({ uri });
        subscribed.clear();
        return text('done');
    });
    const who = completable(z.string(), names);
    server.registerPrompt('greet', { argsSchema: { who } }, greeting);

    // What the SDK leaves to its lower level: pages and subscriptions.
    inPages(lower, ListToolsRequestSchema);
    lower.setRequestHandler(SubscribeRequestSchema, ({ params }) => (subscribed.add(params.uri), {}));
    lower.setRequestHandler(UnsubscribeRequestSchema, ({ params }) => (subscribed.delete(params.uri), {}));
    return server;
}

function listen(path, answer) {
    const http = createServer((request, response) => {
        answer(request, response, new URL(request.url, 'http://127.0.0.1')).catch((error) => {
            console.error(error);
            response.destroy();
        });
    });
    http.listen(0, '127.0.0.1', () => console.error(`http://127.0.0.1:${http.address().port}${path}`));
}

switch (process.argv[2]) {
    case 'stdio': {
        const server = desk();
        await server.connect(new StdioServerTransport());
        // This version does not notice that nobody speaks any more.
        process.stdin.on('end', () => server.close());
        break;
    }
    case 'http':
        listen('/mcp', async (request, response) => {
            const transport = await ofSession(request, response, async (keep) => {
                const transport = new StreamableHTTPServerTransport({
                    sessionIdGenerator: randomUUID,
                    onsessioninitialized: (id) => keep(id, transport)
                });
                await desk().connect(transport);
                return transport;
            });
            await transport?.handleRequest(request, response);
        });
        break;
    case 'plain':
        listen('/mcp', async (request, response) => {
            if (request.method !== 'POST') return response.writeHead(405).end();
            const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
            await desk().connect(transport);
            await transport.handleRequest(request, response);
        });
        break;
    case 'sse': {
        const sessions = new Map();
        listen('/sse', async (request, response, url) => {
            if (request.method === 'GET' && url.pathname === '/sse') {
                const transport = new SSEServerTransport('/messages', response);
                sessions.set(transport.sessionId, transport);
                await desk().connect(transport);
            } else if (request.method === 'POST' && url.pathname === '/messages') {
                await sessions.get(url.searchParams.get('sessionId')).handlePostMessage(request, response);
            } else {
                response.writeHead(405).end();
            }
        });
        break;
    }
}
