// What code can use besides JavaScript itself. `spile new` writes this file; replace it with that of a newer version.

/** A JSON Schema, or a schema of a library that implements Standard JSON Schema, such as zod 4. */
type SpileSchema = object | boolean;

declare namespace Spile {
  type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

  /** The second argument of a tool, a prompt or a resource: what it may do, and what `context.ts` returns. */
  interface Context {
    /** Tells the client how far the call is. */
    progress(progress: number, total?: number, message?: string): void;
    progress(report: { progress: number; total?: number; message?: string }): void;

    /** Sends a log message to the client, at `info` unless a level is given. */
    log: Log;

    /**
     * Asks the user to fill in a form. The key names the question: after a restart, the answer is found by it.
     * The answers match the schema.
     */
    elicit<T = Record<string, string | number | boolean | string[]>>(
      key: string,
      options: { message: string; schema: SpileSchema },
    ): Promise<ElicitResult<T>>;
    /** Asks the user to open a page, and waits until they have. */
    elicit(key: string, options: { message: string; url: string | URL }): Promise<ElicitResult<undefined>>;

    /** Asks the client's model. */
    sample(key: string, request: string | SampleRequest): Promise<SampleResult>;

    /** The folders that the client works in. */
    roots(key?: string): Promise<Root[]>;

    /** Aborted when the client cancels the call, or when its time is over. */
    readonly signal: AbortSignal;

    /** A request to a host that `permissions.network` names. */
    fetch: typeof fetch;

    /** Files below the folders that `permissions.files` names. */
    files: Files;

    /** An environment variable that `permissions.env` names. */
    env(name: string): string | undefined;

    /** A secret that the manifest declares. */
    secret(name: string): string;

    /** A collection of the manifest, with the operations that it has. */
    collection<Row = Record<string, Json>>(name: string): Collection<Row>;

    /** A statement on the only source: values never become SQL. */
    sql<Row = Record<string, Json>>(parts: TemplateStringsArray, ...values: SqlValue[]): Promise<Row[]>;
    /** A statement on one of several sources. */
    sql(source: string): <Row = Record<string, Json>>(
      parts: TemplateStringsArray,
      ...values: SqlValue[]
    ) => Promise<Row[]>;

    /**
     * Calls another tool of this server, with the same caller, policy and limits. An error of the tool is a result with
     * `isError`.
     */
    tool<Structured = Json>(name: string, args?: object): Promise<ToolResult<Structured>>;

    /** Tells subscribed clients that a list or a resource has changed. */
    emit(event: "tools-changed" | "prompts-changed" | "resources-changed"): void;
    emit(event: "resource-updated", uri: string): void;

    /** Ends the call with error -32021 unless the client has these capabilities. */
    requires(...capabilities: Capability[]): void;

    /** Whether the client has a capability. */
    supports(capability: Capability): boolean;

    /**
     * From here on the call is a task, if the client accepts one. For tools with `task` in their metadata; without this
     * call they are a task from their start.
     */
    detach(): Promise<void>;

    /** Closes the stream of a call; the client asks again after this time. */
    closeStream(retryMs?: number): void;

    /** Waits. */
    sleep(ms: number, options?: { signal?: AbortSignal }): Promise<void>;

    /** The request that the call came with. */
    readonly request: Request;

    McpError: typeof McpError;

    /** The same object, for code that takes the second argument apart. */
    readonly ctx: Context;
  }

  interface Log {
    (message: unknown): void;
    (level: LogLevel, data: unknown): void;
    debug(data: unknown): void;
    info(data: unknown): void;
    notice(data: unknown): void;
    warning(data: unknown): void;
    warn(data: unknown): void;
    error(data: unknown): void;
    critical(data: unknown): void;
    alert(data: unknown): void;
    emergency(data: unknown): void;
  }

  type LogLevel = "debug" | "info" | "notice" | "warning" | "error" | "critical" | "alert" | "emergency";

  type ElicitResult<T> =
    | { action: "accept"; content: T }
    | { action: "decline"; content?: undefined }
    | { action: "cancel"; content?: undefined };

  type Capability =
    | "roots"
    | "sampling"
    | "sampling.tools"
    | "sampling.context"
    | "elicitation"
    | "elicitation.form"
    | "elicitation.url"
    | "tasks";

  interface SampleRequest {
    messages: { role: "user" | "assistant"; content: Content | Content[] }[];
    systemPrompt?: string;
    maxTokens?: number;
    temperature?: number;
    stopSequences?: string[];
    modelPreferences?: {
      hints?: { name?: string }[];
      costPriority?: number;
      speedPriority?: number;
      intelligencePriority?: number;
    };
  }

  interface SampleResult {
    role: "user" | "assistant";
    content: Content | Content[];
    model: string;
    stopReason?: string;
  }

  type Content =
    | { type: "text"; text: string }
    | { type: "image" | "audio"; data: string; mimeType: string }
    | { type: "resource_link"; uri: string; name: string; description?: string; mimeType?: string }
    | { type: "resource"; resource: { uri: string; mimeType?: string } & ({ text: string } | { blob: string }) };

  interface Root {
    uri: string;
    name?: string;
  }

  interface Files {
    read(path: string): Promise<string>;
    readBytes(path: string): Promise<Uint8Array>;
    readJson<T = Json>(path: string): Promise<T>;
    list(path?: string): Promise<{ name: string; type: "file" | "folder" }[]>;
    exists(path: string): Promise<boolean>;
    write(path: string, data: string | Uint8Array): Promise<void>;
    remove(path: string): Promise<void>;
  }

  interface ToolResult<Structured> {
    content: Content[];
    structuredContent?: Structured;
    isError?: boolean;
  }

  /** The operations of a collection take the arguments of its tools and return their structured content. */
  interface Collection<Row> {
    get(args: object): Promise<Row>;
    list(args?: object): Promise<Page<Row>>;
    search(args: object): Promise<Page<Row>>;
    aggregate<Group = Record<string, Json>>(
      args: object,
    ): Promise<{ items: Group[]; groups_total: number; truncated: boolean }>;
    create(args: object): Promise<Written<Row>>;
    update(args: object): Promise<Written<Row>>;
    delete(args: object): Promise<Written<Row>>;
  }

  interface Page<Row> {
    items: Row[];
    truncated: boolean;
    /** Pass it as `cursor` to get the next page. */
    nextCursor?: string;
    total?: number;
  }

  interface Written<Row> {
    outcome: "created" | "updated" | "unchanged" | "deleted";
    /** The record after the write, or the one that was deleted. */
    record: Row;
    /** Nothing was written: the call was a preview. */
    dry_run?: true;
    /** Nothing was written: an earlier call with the same `idempotency_key` did. */
    replayed?: true;
  }

  type SqlValue = null | undefined | boolean | number | bigint | string;

  /** What a tool file exports as `metadata`. */
  interface ToolMetadata {
    title?: string;
    description?: string;
    annotations?: {
      title?: string;
      readOnlyHint?: boolean;
      destructiveHint?: boolean;
      idempotentHint?: boolean;
      openWorldHint?: boolean;
    };
    icons?: { src: string; mimeType?: string; sizes?: string[]; theme?: "light" | "dark" }[];
    /** Whether a call may, or must, run as a task. */
    task?: "never" | "optional" | "required";
    /** The time limit of a call. */
    timeoutMs?: number;
    /** Whether all callers see the same module state. Without it, each has its own. */
    sharedState?: boolean;
    _meta?: { [name: string]: Json };
  }

  /** What a file of `prompts/` exports as `metadata`. Without `arguments`, the type of the first parameter says them. */
  interface PromptMetadata {
    title?: string;
    description?: string;
    arguments?: (string | PromptArgument)[];
    icons?: ToolMetadata["icons"];
    _meta?: { [name: string]: Json };
  }

  interface PromptArgument {
    name: string;
    title?: string;
    description?: string;
    required?: boolean;
    /** The only accepted values. */
    enum?: string[];
    /** Suggestions while the user types: values, or a field of a collection. */
    complete?: string[] | { collection: string; field: string };
  }

  /** What a prompt returns: a text is one message of the user. */
  type PromptResult = string | PromptPart[] | { description?: string; messages: PromptPart[] };
  type PromptPart = string | Content | { role: "user" | "assistant"; content: string | Content | (string | Content)[] };

  /** What the code of a resource returns. Nothing means that there is no such resource. */
  type ResourceResult =
    | string
    | Uint8Array
    | { text: string; mimeType?: string }
    | { blob: string; mimeType?: string }
    | Json
    | undefined;

  /** The default export of a tool file. */
  type Tool<Input = Record<string, Json>, Extra = unknown> = (input: Input, ctx: Context & Extra) => unknown;

  /** What the default export of `context.ts` receives. Its result is part of every tool's second argument. */
  interface Request {
    method: "tools/call" | "prompts/get" | "resources/read";
    /** The name of the tool or the prompt, or the URI of the resource. */
    tool?: string;
    prompt?: string;
    uri?: string;
    /** Names in lower case, without credentials. Empty where there are none: on stdio, sockets and WebSockets. */
    headers: Record<string, string>;
    principal?: { issuer: string; subject: string; scopes: string[]; claims?: Json };
    /** Differs for each session or connection. */
    session?: string;
    /** W3C Trace Context. */
    trace?: { traceparent?: string; tracestate?: string; baggage?: string };
  }
}

/** Ends a call with a JSON-RPC error. Any other error becomes the result of the tool. */
declare class McpError extends Error {
  constructor(code: number, message: string, data?: unknown);
  readonly code: number;
  readonly data?: unknown;
}

// The parts of the web platform that a tool has.

declare const self: typeof globalThis;
declare const global: typeof globalThis;
declare const console: Record<
  "log" | "debug" | "info" | "warn" | "error" | "trace" | "dir" | "table",
  (...data: unknown[]) => void
> & { assert(condition?: unknown, ...data: unknown[]): void };
/** The clock of a call: it stands still while code runs. */
declare const performance: { now(): number; readonly timeOrigin: number };
declare function fetch(input: string | URL, init?: RequestInit): Promise<Response>;
declare function setTimeout(callback: (...args: any[]) => void, ms?: number, ...args: any[]): number;
declare function setInterval(callback: (...args: any[]) => void, ms?: number, ...args: any[]): number;
declare function clearTimeout(id: number | undefined): void;
declare function clearInterval(id: number | undefined): void;
declare function setImmediate(callback: (...args: any[]) => void, ...args: any[]): number;
declare function clearImmediate(id: number | undefined): void;
declare function queueMicrotask(callback: () => void): void;
declare function structuredClone<T>(value: T): T;
declare function atob(text: string): string;
declare function btoa(text: string): string;
declare const crypto: {
  randomUUID(): `${string}-${string}-${string}-${string}-${string}`;
  getRandomValues<T extends ArrayBufferView>(array: T): T;
};

interface RequestInit {
  method?: string;
  headers?: Headers | Record<string, string> | [string, string][];
  body?: string | ArrayBuffer | ArrayBufferView | URLSearchParams | null;
  redirect?: "follow" | "error" | "manual";
  signal?: AbortSignal;
}
declare class Headers implements Iterable<[string, string]> {
  constructor(init?: Headers | Record<string, string> | Iterable<[string, string]>);
  append(name: string, value: string): void;
  set(name: string, value: string): void;
  get(name: string): string | null;
  has(name: string): boolean;
  delete(name: string): void;
  forEach(callback: (value: string, name: string, headers: Headers) => void): void;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  entries(): IterableIterator<[string, string]>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}
declare class Response {
  private constructor();
  readonly ok: boolean;
  readonly status: number;
  readonly statusText: string;
  readonly url: string;
  readonly redirected: boolean;
  readonly headers: Headers;
  readonly bodyUsed: boolean;
  text(): Promise<string>;
  json(): Promise<any>;
  bytes(): Promise<Uint8Array>;
  arrayBuffer(): Promise<ArrayBuffer>;
}
declare class URL {
  constructor(url: string | URL, base?: string | URL);
  hash: string;
  host: string;
  hostname: string;
  href: string;
  readonly origin: string;
  password: string;
  pathname: string;
  port: string;
  protocol: string;
  search: string;
  readonly searchParams: URLSearchParams;
  username: string;
  toString(): string;
  toJSON(): string;
  static canParse(url: string | URL, base?: string | URL): boolean;
  static parse(url: string | URL, base?: string | URL): URL | null;
}
declare class URLSearchParams implements Iterable<[string, string]> {
  constructor(init?: string | Record<string, string> | Iterable<[string, string]> | URLSearchParams);
  append(name: string, value: string): void;
  delete(name: string): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string): boolean;
  set(name: string, value: string): void;
  sort(): void;
  forEach(callback: (value: string, name: string, params: URLSearchParams) => void): void;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  entries(): IterableIterator<[string, string]>;
  readonly size: number;
  toString(): string;
  [Symbol.iterator](): IterableIterator<[string, string]>;
}
declare class TextEncoder {
  encode(text?: string): Uint8Array;
}
declare class TextDecoder {
  constructor(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  decode(bytes?: ArrayBuffer | ArrayBufferView): string;
}
declare class AbortController {
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
}
declare class Event {
  constructor(type: string, init?: { cancelable?: boolean });
  readonly type: string;
  readonly target: EventTarget | null;
  readonly currentTarget: EventTarget | null;
  readonly defaultPrevented: boolean;
  preventDefault(): void;
}
declare class EventTarget {
  addEventListener(type: string, listener: (event: Event) => void, options?: { once?: boolean }): void;
  removeEventListener(type: string, listener: (event: Event) => void): void;
  dispatchEvent(event: Event): boolean;
}
declare class AbortSignal extends EventTarget {
  private constructor();
  readonly aborted: boolean;
  readonly reason: any;
  onabort: ((event: Event) => void) | null;
  throwIfAborted(): void;
  static abort(reason?: unknown): AbortSignal;
  static timeout(ms: number): AbortSignal;
  static any(signals: Iterable<AbortSignal>): AbortSignal;
}
declare class DOMException extends Error {
  constructor(message?: string, name?: string);
  readonly code: number;
}
