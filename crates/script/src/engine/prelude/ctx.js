// `ctx`: what a tool may do, as methods. The host decides what is permitted.
const requireText = (value, what) => {
  if (typeof value !== "string" || value === "")
    throw new PrimordialTypeError(`${what}: expected a non-empty string`);
  return value;
};

// Questions. The same key asked again is another question.
const askedKeys = new PrimordialMap();
const questionKey = (key, what) => {
  isClean = false;
  requireText(key, `${what}: the key`);
  const count = (askedKeys.get(key) ?? 0) + 1;
  askedKeys.set(key, count);
  return count === 1 ? key : `${key}#${count}`;
};
const elicit = (key, options) => {
  const name = questionKey(key, "ctx.elicit");
  const { message, url } = options ?? {};
  requireText(message, "ctx.elicit: `message`");
  if (url !== undefined) return effect("ask", { key: name, mode: "url", message, url: toText(url) });
  const schema = options.schema ?? options.requestedSchema;
  if (schema === undefined) throw new PrimordialTypeError("ctx.elicit: expected `schema` or `url`");
  return effect("ask", { key: name, mode: "form", message, schema: schemaOf(schema, "input") });
};
const sample = (key, params) => {
  const name = questionKey(key, "ctx.sample");
  const full =
    typeof params === "string"
      ? { messages: [{ role: "user", content: { type: "text", text: params } }] }
      : { ...params };
  full.maxTokens ??= 1024;
  return effect("ask", { key: name, mode: "sample", params: full });
};
const roots = async (key = "roots") => {
  const answer = await effect("ask", { key: questionKey(key, "ctx.roots"), mode: "roots" });
  return answer.roots ?? [];
};

// Requests.
class Headers {
  #map = new PrimordialMap();
  constructor(init = {}) {
    const entries =
      init instanceof Headers
        ? init
        : typeof init?.[Symbol.iterator] === "function"
          ? init
          : ObjectEntries(init ?? {});
    for (const [name, value] of entries) this.append(name, value);
  }
  append(name, value) {
    const key = lowerCase(toText(name)),
      old = this.#map.get(key);
    this.#map.set(key, old === undefined ? toText(value) : `${old}, ${toText(value)}`);
  }
  set(name, value) {
    this.#map.set(lowerCase(toText(name)), toText(value));
  }
  get(name) {
    return this.#map.get(lowerCase(toText(name))) ?? null;
  }
  has(name) {
    return this.#map.has(lowerCase(toText(name)));
  }
  delete(name) {
    this.#map.delete(lowerCase(toText(name)));
  }
  forEach(callback, self) {
    for (const [name, value] of this) apply(callback, self, [value, name, this]);
  }
  keys() {
    return [...this].map(([name]) => name)[Symbol.iterator]();
  }
  values() {
    return [...this].map(([, value]) => value)[Symbol.iterator]();
  }
  entries() {
    return this[Symbol.iterator]();
  }
  [Symbol.iterator]() {
    return [...this.#map].sort(([a], [b]) => (a < b ? -1 : 1))[Symbol.iterator]();
  }
}
class Response {
  #bytes;
  #used = false;
  constructor(answer) {
    this.status = answer.status;
    this.statusText = answer.statusText ?? "";
    this.url = answer.url;
    this.redirected = answer.redirected;
    this.headers = new Headers(answer.headers);
    this.ok = answer.status >= 200 && answer.status < 300;
    this.type = "basic";
    this.#bytes = answer.text !== undefined ? hostEncode(answer.text) : bytesOfBase64(answer.base64);
  }
  get bodyUsed() {
    return this.#used;
  }
  #take() {
    if (this.#used) throw new PrimordialTypeError("the body of the response has been read already");
    this.#used = true;
    return this.#bytes;
  }
  async bytes() {
    return this.#take();
  }
  async arrayBuffer() {
    return this.#take().slice().buffer;
  }
  async text() {
    return new TextDecoder().decode(this.#take());
  }
  async json() {
    return jsonParse(await this.text());
  }
}
const bodyOf = (body, headers) => {
  if (body == null) return {};
  if (body instanceof URLSearchParams) {
    if (!headers.has("content-type"))
      headers.set("content-type", "application/x-www-form-urlencoded;charset=UTF-8");
    return { text: body.toString() };
  }
  if (body instanceof ArrayBuffer) return { base64: base64OfBytes(new Uint8Array(body)) };
  if (ArrayBuffer.isView(body))
    return { base64: base64OfBytes(new Uint8Array(body.buffer, body.byteOffset, body.byteLength)) };
  if (typeof body === "object")
    throw new PrimordialTypeError("fetch: the body must be text, bytes or URLSearchParams");
  if (!headers.has("content-type")) headers.set("content-type", "text/plain;charset=UTF-8");
  return { text: toWellFormed(toText(body)) };
};
const fetch = async (input, init = {}) => {
  const url = new URL(input instanceof URL ? input.href : toText(input)).href;
  const headers = new Headers(init.headers),
    method = toText(init.method ?? "GET").toUpperCase();
  const body = bodyOf(init.body, headers),
    redirect = toText(init.redirect ?? "follow");
  const answer = await effect(
    "fetch",
    { url, method, headers: [...headers], redirect, ...body },
    init.signal,
  );
  return new Response(answer);
};

// Files under the declared roots.
const files = ObjectFreeze({
  read: async (path) => (await effect("files.read", { path: requireText(path, "ctx.files.read") })).text,
  readBytes: async (path) =>
    bytesOfBase64(
      (await effect("files.readBytes", { path: requireText(path, "ctx.files.readBytes") })).base64,
    ),
  readJson: async (path) => jsonParse(await files.read(path)),
  list: async (path = ".") =>
    (await effect("files.list", { path: requireText(path, "ctx.files.list") })).entries,
  exists: async (path) =>
    (await effect("files.exists", { path: requireText(path, "ctx.files.exists") })).exists,
  write: async (path, data) => {
    const body =
      typeof data === "string"
        ? { text: toWellFormed(data) }
        : {
            base64: base64OfBytes(new Uint8Array(data.buffer ?? data, data.byteOffset ?? 0, data.byteLength)),
          };
    await effect("files.write", { path: requireText(path, "ctx.files.write"), ...body });
  },
  remove: async (path) => {
    await effect("files.remove", { path: requireText(path, "ctx.files.remove") });
  },
});

// Data of the server.
const collection = (name) => {
  requireText(name, "ctx.collection: the name");
  return new Proxy(ObjectFreeze(ObjectCreate(null)), {
    get(_, operation) {
      // A promise asks everything for `then`.
      if (typeof operation !== "string" || operation === "then" || operation === "toJSON") return undefined;
      return (args = {}) => effect("collection", { collection: name, operation, arguments: args });
    },
  });
};
// JSON.stringify refuses big integers.
const sqlValue = (value) => (typeof value === "bigint" ? { bigint: toText(value) } : (value ?? null));
const sqlOn =
  (source) =>
  (parts, ...values) => {
    if (!isArray(parts?.raw))
      throw new PrimordialTypeError("ctx.sql: use it as a tag, as in ctx.sql`select … where id = ${id}`");
    return effect("sql", { source, parts: [...parts], values: values.map(sqlValue) });
  };
// ctx.sql`…` on the only source, ctx.sql("name")`…` on one of several.
const sql = (first, ...values) =>
  typeof first === "string" ? sqlOn(first) : sqlOn(undefined)(first, ...values);

const CAPABILITIES = [
  "roots",
  "sampling",
  "sampling.tools",
  "sampling.context",
  "elicitation.form",
  "elicitation.url",
  "tasks",
];
const REQUIRES = Symbol("missing capability");
const capabilityName = (name, what) => {
  const full = name === "elicitation" ? "elicitation.form" : name;
  if (!CAPABILITIES.includes(full))
    throw new PrimordialTypeError(
      `${what}: unknown capability \`${toText(name)}\`; expected one of ${CAPABILITIES.join(", ")}`,
    );
  return full;
};
const supports = (name) => host.hasCapability(capabilityName(name, "ctx.supports"));
const requires = (...names) => {
  for (const name of names) {
    const full = capabilityName(name, "ctx.requires");
    if (!host.hasCapability(full)) {
      const error = new McpError(-32021, `this needs the client capability \`${full}\``);
      defineProperty(error, REQUIRES, { value: full });
      throw error;
    }
  }
};

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
const log = (level, data) => {
  if (data === undefined && !LEVELS.includes(level))
    return signal("log", { level: "info", data: logData(level) });
  if (!LEVELS.includes(level)) throw new PrimordialTypeError(`ctx.log: unknown level \`${toText(level)}\``);
  signal("log", { level, data: logData(data) });
};
const logData = (data) => (data === undefined ? null : data instanceof PrimordialError ? toText(data) : data);
for (const level of LEVELS) log[level] = (data) => log(level, data ?? null);
log.warn = log.warning;

const EVENTS = ["tools-changed", "prompts-changed", "resources-changed", "resource-updated"];
// Made when they are first asked for.
let callSignal = undefined,
  callRequest = undefined,
  requestText = "null";
const currentSignal = () => (callSignal ??= new AbortSignal(MAKE_SIGNAL));
const currentRequest = () => (callRequest ??= jsonParse(requestText));
const ctx = {
  progress(progress, total, message) {
    const report =
      typeof progress === "object" && progress !== null ? progress : { progress, total, message };
    if (typeof report.progress !== "number") throw new PrimordialTypeError("ctx.progress: expected a number");
    signal("progress", { progress: report.progress, total: report.total, message: report.message });
  },
  log,
  elicit,
  sample,
  roots,
  fetch,
  files,
  collection,
  sql,
  requires,
  supports,
  detach: () => effect("detach", {}).then(() => undefined),
  McpError,
  get signal() {
    return currentSignal();
  },
  get request() {
    // The host describes the request only for programs whose own files say `request`.
    if (currentRequest() === null)
      throw new PrimordialTypeError("ctx.request: write `ctx.request` in a file of the folder, not in a package");
    return currentRequest();
  },
  env: (name) => hostRead("env", requireText(name, "ctx.env: the name")),
  secret: (name) => hostRead("secret", requireText(name, "ctx.secret: the name")),
  tool: (name, args = {}) =>
    effect("tool", { name: requireText(name, "ctx.tool: the name"), arguments: args }),
  emit(event, uri) {
    if (!EVENTS.includes(event))
      throw new PrimordialTypeError(
        `ctx.emit: unknown event \`${toText(event)}\`; expected one of ${EVENTS.join(", ")}`,
      );
    signal(
      "emit",
      event === "resource-updated" ? { event, uri: requireText(uri, "ctx.emit: the URI") } : { event },
    );
  },
  closeStream(retryMs = 1000) {
    signal("closeStream", { retryMs: clampIndex(retryMs, 60000) });
  },
  sleep: (ms, options) =>
    effect("sleep", { ms: clampIndex(ms, 0x7fffffff) }, options?.signal).then(() => undefined),
};
install(ctx, "ctx", ctx);
install(globalThis, "fetch", fetch);
install(globalThis, "Headers", Headers);
install(globalThis, "Response", Response);
