// The fixture of `tests/it/servers.rs`, written with the official TypeScript SDK 1
// (`@modelcontextprotocol/sdk`). It knows the handshake only.
//
//   ts1.mjs stdio|http|plain|sse
//
// Over HTTP the address is printed on stderr once the server listens.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { randomUUID } from 'node:crypto';

/** The packages installed beside the Node that runs us: this file lies elsewhere. */
const installed = createRequire(process.execPath);
const { McpServer, ResourceTemplate } = installed('@modelcontextprotocol/sdk/server/mcp.js');
const { completable } = installed('@modelcontextprotocol/sdk/server/completable.js');
const { StdioServerTransport } = installed('@modelcontextprotocol/sdk/server/stdio.js');
const { SSEServerTransport } = installed('@modelcontextprotocol/sdk/server/sse.js');
const { StreamableHTTPServerTransport } = installed('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { ListToolsRequestSchema, SubscribeRequestSchema, UnsubscribeRequestSchema } = installed('@modelcontextprotocol/sdk/types.js');
const { z } = installed('zod');

const PAGE = 4;

let cancelled = Promise.withResolvers();
const subscribed = new Set();
const text = (text) => ({ content: [{ type: 'text', text }] });

function desk() {
    const server = new McpServer(
        { name: 'official', version: '1.2.3' },
        { instructions: 'for tests', capabilities: { logging: {}, resources: { subscribe: true } } }
    );
    const lower = server.server;

    const inputSchema = { a: z.number().int(), b: z.number().int() };
    server.registerTool('add', { inputSchema, outputSchema: { sum: z.number().int() } }, ({ a, b }) => ({
        ...text(`${a + b}`),
        structuredContent: { sum: a + b }
    }));
    server.registerTool('fail', {}, () => {
        throw new Error('on purpose');
    });
    const report = (extra, progress, total) => {
        const progressToken = extra._meta?.progressToken;
        if (progressToken === undefined) return;
        const params = { progressToken, progress, total, message: `step ${progress}` };
        return extra.sendNotification({ method: 'notifications/progress', params });
    };
    server.registerTool('progress', {}, async (extra) => {
        for (const step of [1, 2, 3]) await report(extra, step, 3);
        return text('done');
    });
    server.registerTool('log', {}, async (extra) => {
        await server.sendLoggingMessage({ level: 'warning', logger: 'desk', data: { careful: true } }, extra.sessionId);
        return text('done');
    });
    server.registerTool('ask', {}, async (extra) => {
        const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
        const answer = await lower.elicitInput({ message: 'who are you?', requestedSchema }, { relatedRequestId: extra.requestId });
        return text(`hello ${answer.content.name}`);
    });
    // Related to no request: over HTTP the question comes down the stream of its own.
    server.registerTool('sample', {}, async () => {
        const question = { role: 'user', content: { type: 'text', text: 'the capital?' } };
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
    server.registerTool('wait', {}, async (extra) => {
        extra.signal.addEventListener('abort', () => cancelled.resolve());
        await report(extra, 1);
        return new Promise(() => {});
    });
    server.registerTool('was_cancelled', { description: 'Answers once `wait` has been cancelled' }, async () => {
        await cancelled.promise;
        cancelled = Promise.withResolvers();
        return text('yes');
    });
    server.registerTool('die', {}, () => process.exit(7));

    server.registerResource('one', 'test://one', { mimeType: 'text/plain' }, (uri) => ({
        contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'one' }]
    }));
    server.registerResource('blob', 'test://blob', { mimeType: 'application/octet-stream' }, (uri) => ({
        contents: [{ uri: uri.href, mimeType: 'application/octet-stream', blob: 'AAEC' }]
    }));
    const template = new ResourceTemplate('test://item/{id}', { list: undefined });
    server.registerResource('item', template, { mimeType: 'text/plain' }, (uri, { id }) => ({
        contents: [{ uri: uri.href, mimeType: 'text/plain', text: `item ${id}` }]
    }));
    const who = completable(z.string(), (value) => ['ada', 'alan', 'grace'].filter((name) => name.startsWith(value)));
    server.registerPrompt('greet', { argsSchema: { who } }, ({ who }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `hello ${who}` } }]
    }));

    // What the SDK leaves to its lower level: pages and subscriptions.
    const whole = lower._requestHandlers.get('tools/list');
    lower.setRequestHandler(ListToolsRequestSchema, async (request, extra) => {
        const { tools } = await whole(request, extra);
        const start = Number(request.params?.cursor ?? 0);
        const more = start + PAGE < tools.length ? { nextCursor: `${start + PAGE}` } : {};
        return { tools: tools.slice(start, start + PAGE), ...more };
    });
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

const sessions = new Map();

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
            let transport = sessions.get(request.headers['mcp-session-id']);
            if (!transport && request.headers['mcp-session-id']) return response.writeHead(404).end();
            if (!transport) {
                transport = new StreamableHTTPServerTransport({
                    sessionIdGenerator: randomUUID,
                    onsessioninitialized: (id) => sessions.set(id, transport)
                });
                await desk().connect(transport);
            }
            await transport.handleRequest(request, response);
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
    case 'sse':
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
