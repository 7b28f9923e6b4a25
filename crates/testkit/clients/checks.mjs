// What the TypeScript clients check, and how they are told what to connect to. The SDKs differ only
// in how a client is made, which `ts1.mjs` and `ts2.mjs` bring.
//
//   tsN.mjs --fixture bench|conformance|customers --protocol DATE|auto (--url URL | --sse URL | --command CMD [ARG...])
//
// Exits 0 when everything held; otherwise the error on stderr tells what did not.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const STRUCTURED_SINCE = '2025-06-18';
const ELICITATION_SINCE = '2025-06-18';
const LATEST = '2026-07-28';

/** The packages installed beside the Node that runs us: this file lies elsewhere. */
export const installed = createRequire(process.execPath);

export function parseArguments() {
    const args = { fixture: undefined, protocol: undefined, url: undefined, sse: undefined, command: undefined };
    const rest = process.argv.slice(2);
    while (rest.length > 0) {
        const name = rest.shift().replace(/^--/, '');
        assert(name in args, `unknown option --${name}`);
        args[name] = name === 'command' ? rest.splice(0) : rest.shift();
    }
    assert(args.fixture && args.protocol && (args.url || args.sse || args.command), 'see the top of checks.mjs for usage');
    return args;
}

/** The transport that the arguments ask for, of those that an SDK brings. */
export function connection(args, { Http, Sse, Stdio }) {
    if (args.url) return new Http(new URL(args.url));
    if (args.sse) return new Sse(new URL(args.sse));
    return new Stdio({ command: args.command[0], args: args.command.slice(1) });
}

/** What a client answers when `test_elicitation` asks; remembers the questions. */
export function answers() {
    const asked = [];
    const answer = ({ params }) => {
        asked.push(params.message);
        assert.deepEqual(Object.keys(params.requestedSchema.properties).sort(), ['email', 'username']);
        return { action: 'accept', content: { username: 'ada', email: 'ada@example.com' } };
    };
    return { asked, answer };
}

/** `client` has `listTools()` and `callTool(params, options)`. */
export async function check(args, client, version, asked) {
    assert.equal(version, args.protocol === 'auto' ? LATEST : args.protocol, 'negotiated version');
    const names = (await client.listTools()).tools.map((tool) => tool.name);
    if (args.fixture === 'bench') {
        assert.equal(names.length, 10, names.join());
        await checkLookup(client, version);
    } else if (args.fixture === 'customers') {
        assert.deepEqual(names, ['lookup_customer', 'list_customers', 'search_customers', 'aggregate_customers']);
        await checkCustomers(client, version);
    } else {
        await checkSimpleText(client);
        await checkProgress(client);
        if (version >= ELICITATION_SINCE) await checkElicitation(client, asked);
    }
    await checkUnknownTool(client);
}

async function checkLookup(client, version) {
    const result = await client.callTool({ name: 'lookup_customer', arguments: { email: 'user42@example.com' } });
    const record = JSON.parse(text(result));
    assert.deepEqual(Object.keys(record).sort(), ['email', 'plan', 'signup_date']);
    assert.equal(record.email, 'user42@example.com');
    if (version >= STRUCTURED_SINCE) assert.deepEqual(result.structuredContent, record);
}

/** `examples/customers`: a record, what is wrong with a call, and every row once. */
async function checkCustomers(client, version) {
    const call = async (name, args) => {
        const result = await client.callTool({ name, arguments: args });
        if (version >= STRUCTURED_SINCE) return { ...result, typed: result.structuredContent };
        return { ...result, typed: JSON.parse(text(result)) };
    };
    const found = await call('lookup_customer', { email: 'dana@acme.test' });
    assert(!found.isError, JSON.stringify(found));
    assert.deepEqual(found.typed, { email: 'dana@acme.test', plan: 'emerald', signup_date: '2026-02-11' });
    if (version >= STRUCTURED_SINCE) {
        assert.equal(text(found), 'Found customer dana@acme.test on the emerald plan.');
    }

    // Both SDKs hold errors against the output schema too, and throw what does not fit.
    const missing = await call('lookup_customer', {});
    assert.equal(missing.isError, true, JSON.stringify(missing));
    const { code, field, reason } = missing.typed;
    assert.deepEqual({ code, field, reason }, { code: 'invalid_arguments', field: 'email', reason: 'missing_required' });
    const nobody = await call('lookup_customer', { email: 'nobody@acme.test' });
    assert.equal(nobody.isError, true, JSON.stringify(nobody));
    assert.equal(nobody.typed.code, 'not_found');

    const seen = [];
    const sizes = [];
    let cursor;
    do {
        const page = await call('list_customers', { limit: 5, ...(cursor && { cursor }) });
        assert(!page.isError, JSON.stringify(page));
        assert.equal(page.typed.total, 12);
        assert.equal(page.typed.truncated, page.typed.nextCursor !== undefined);
        seen.push(...page.typed.items.map((item) => item.email));
        sizes.push(page.typed.items.length);
        cursor = page.typed.nextCursor;
    } while (cursor);
    assert.deepEqual(sizes, [5, 5, 2]);
    assert.equal(new Set(seen).size, 12, seen.join());
    const garbled = await call('list_customers', { limit: 5, cursor: 'garbled' });
    assert.deepEqual([garbled.isError, garbled.typed.field], [true, 'cursor']);
}

async function checkUnknownTool(client) {
    let result;
    try {
        result = await client.callTool({ name: 'no_such_tool', arguments: {} });
    } catch (error) {
        assert.match(error.message, /no_such_tool/);
        return;
    }
    assert(result.isError, JSON.stringify(result));
}

async function checkSimpleText(client) {
    const result = await client.callTool({ name: 'test_simple_text' });
    assert.equal(text(result), 'This is a simple text response for testing.');
}

async function checkProgress(client) {
    const seen = [];
    const onprogress = ({ progress }) => seen.push(progress);
    await client.callTool({ name: 'test_tool_with_progress' }, { onprogress });
    // Both SDKs forget the callback when they read the result, and drop a notification that was read
    // together with it: the last one may be missing.
    assert(seen.length >= 2, `progress: ${seen}`);
    assert.deepEqual(seen, [0, 50, 100].slice(0, seen.length));
}

async function checkElicitation(client, asked) {
    const result = await client.callTool({ name: 'test_elicitation', arguments: { message: 'Who are you?' } });
    assert.deepEqual(asked, ['Who are you?']);
    assert(!result.isError, JSON.stringify(result));
    assert.match(text(result), /^User response.*ada/s);
}

function text(result) {
    // Without structured content the data comes behind the words.
    assert.ok([1, 2].includes(result.content.length), JSON.stringify(result));
    return result.content.at(-1).text;
}
