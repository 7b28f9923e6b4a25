// What the fixtures of both TypeScript SDKs have alike. Which SDK it is, only the file that is run knows: it makes the
// server, and hands it in with the classes that are its own.

const PAGE = 4;

let cancelled = Promise.withResolvers();

export const subscribed = new Set();
export const text = (text) => ({ content: [{ type: 'text', text }] });
export const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
export const question = { role: 'user', content: { type: 'text', text: 'the capital?' } };
export const sum = ({ a, b }) => ({ ...text(`${a + b}`), structuredContent: { sum: a + b } });
export const names = (value) => ['ada', 'alan', 'grace'].filter((name) => name.startsWith(value));
export const greeting = ({ who }) => ({ messages: [{ role: 'user', content: { type: 'text', text: `hello ${who}` } }] });

/**
 * Tools and resources that are declared in the same words in both. `parts` are those of what a handler is given: the
 * request's `_meta`, how to `notify` the client, and the `signal` that says that it was cancelled.
 */
export function register(server, ResourceTemplate, parts) {
    const report = (given, progress, total) => {
        const part = parts(given);
        const progressToken = part._meta?.progressToken;
        if (progressToken === undefined) return;
        const params = { progressToken, progress, total, message: `step ${progress}` };
        return part.notify({ method: 'notifications/progress', params });
    };
    server.registerTool('fail', {}, () => {
        throw new Error('on purpose');
    });
    server.registerTool('progress', {}, async (given) => {
        for (const step of [1, 2, 3]) await report(given, step, 3);
        return text('done');
    });
    server.registerTool('wait', {}, async (given) => {
        parts(given).signal.addEventListener('abort', () => cancelled.resolve());
        await report(given, 1);
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
}

/** Lists tools a page at a time, which the SDK leaves to its lower level. `kind` is what the SDK calls the request by. */
export function inPages(lower, kind) {
    const whole = lower._requestHandlers.get('tools/list');
    lower.setRequestHandler(kind, async (request, given) => {
        const { tools } = await whole(request, given);
        const start = Number(request.params?.cursor ?? 0);
        const more = start + PAGE < tools.length ? { nextCursor: `${start + PAGE}` } : {};
        return { tools: tools.slice(start, start + PAGE), ...more };
    });
}

const sessions = new Map();

/** The transport of a request's session: what `open` makes for whoever brings no id, nothing for an id that is gone. */
export async function ofSession(request, response, open) {
    const id = request.headers['mcp-session-id'];
    if (id && !sessions.has(id)) {
        response.writeHead(404).end();
        return;
    }
    return sessions.get(id) ?? (await open((id, transport) => sessions.set(id, transport)));
}
