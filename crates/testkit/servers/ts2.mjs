// The fixture of `tests/it/servers.rs`, written with the official TypeScript SDK 2
// (`@modelcontextprotocol/server`), which knows both eras.
//
//   ts2.mjs stdio|http|plain FOLDER-WITH-THE-PACKAGES
//
// Over HTTP the address is printed on stderr once the server listens.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { randomUUID } from 'node:crypto';

import { greeting, inPages, names, ofSession, question, register, requestedSchema, subscribed, sum, text } from './shared.mjs';

const [, , door, packages] = process.argv;
const installed = createRequire(`${packages}/`);
const sdk = installed('@modelcontextprotocol/server');
const { McpServer, ResourceTemplate, completable, inputRequired, inputResponse } = sdk;
const { serveStdio } = installed('@modelcontextprotocol/server/stdio');
const { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } = installed('@modelcontextprotocol/node');
const { z } = installed('zod');

/** Tells of changes to whoever listens over HTTP in the newest era. */
let notify;

function desk({ era }) {
    const server = new McpServer(
        { name: 'official', version: '1.2.3' },
        {
            instructions: 'for tests',
            capabilities: {
                logging: {},
                tools: { listChanged: true },
                prompts: { listChanged: true },
                resources: { subscribe: true, listChanged: true }
            }
        }
    );
    const lower = server.server;

    const inputSchema = z.object({ a: z.int(), b: z.int() });
    server.registerTool('add', { inputSchema, outputSchema: z.object({ sum: z.int() }) }, sum);
    register(server, ResourceTemplate, ({ mcpReq }) => mcpReq);
    server.registerTool('log', {}, async ({ mcpReq }) => {
        await mcpReq.log('warning', { careful: true }, 'desk');
        return text('done');
    });
    // Written once: the SDK sends requests of its own to a client of the handshake era.
    const asking = (name, request, read) => {
        server.registerTool(name, {}, ({ mcpReq }) => {
            const answer = inputResponse(mcpReq.inputResponses, 'answer');
            return answer.kind === 'missing' ? inputRequired({ inputRequests: { answer: request() } }) : text(read(answer));
        });
    };
    asking('ask', () => inputRequired.elicit({ message: 'who are you?', requestedSchema }), ({ content }) => `hello ${content.name}`);
    asking('sample', () => inputRequired.createMessage({ messages: [question], maxTokens: 10 }), ({ result }) => result.content.text);
    asking('roots', () => inputRequired.listRoots(), ({ roots }) => roots.map((root) => root.uri).join(' '));
    server.registerTool('change', {}, async () => {
        if (era === 'modern' && notify) {
            notify.toolsChanged();
            notify.promptsChanged();
            notify.resourcesChanged();
            notify.resourceUpdated('test://one');
        } else {
            await lower.sendToolListChanged();
            await lower.sendPromptListChanged();
            await lower.sendResourceListChanged();
            // In the newest era the SDK knows who listens to what.
            for (const uri of era === 'modern' ? ['test://one'] : subscribed) await lower.sendResourceUpdated({ uri });
            subscribed.clear();
        }
        return text('done');
    });
    const who = completable(z.string(), names);
    server.registerPrompt('greet', { argsSchema: z.object({ who }) }, greeting);

    // What the SDK leaves to its lower level: pages and the subscriptions of the handshake era.
    inPages(lower, 'tools/list');
    if (era === 'legacy') {
        lower.setRequestHandler('resources/subscribe', ({ params }) => (subscribed.add(params.uri), {}));
        lower.setRequestHandler('resources/unsubscribe', ({ params }) => (subscribed.delete(params.uri), {}));
    }
    return server;
}

const handshakeEra = (request, response) =>
    ofSession(request, response, async (keep) => {
        const transport = new NodeStreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: (id) => keep(id, transport)
        });
        await desk({ era: 'legacy' }).connect(transport);
        return transport;
    });

if (door === 'stdio') {
    serveStdio(desk);
} else {
    // Plain is what the SDK does by itself; sessions have to be kept by whoever wants them.
    const modern = sdk.createMcpHandler(desk, { legacy: door === 'plain' ? 'stateless' : 'reject' });
    notify = modern.notify;
    const newest = toNodeHandler(modern);
    const http = createServer(async (request, response) => {
        if (door === 'plain') return newest(request, response);
        const chunks = [];
        for await (const chunk of request) chunks.push(chunk);
        const body = chunks.length > 0 ? JSON.parse(Buffer.concat(chunks)) : undefined;
        if (!(await sdk.isLegacyRequest(await toWebRequest(request, body)))) return newest(request, response, body);
        const transport = await handshakeEra(request, response);
        await transport?.handleRequest(request, response, body);
    });
    http.listen(0, '127.0.0.1', () => console.error(`http://127.0.0.1:${http.address().port}/mcp`));
}
