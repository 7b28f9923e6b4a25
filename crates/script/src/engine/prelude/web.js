// The parts of the web platform that ordinary packages expect.
install(globalThis, "self", globalThis);
install(globalThis, "global", globalThis);

// Text and bytes.
const hostEncode = host.encodeUtf8,
  fromCharCode = String.fromCharCode;
const hostDecode = (bytes, isFatal) => {
  countWork(bytes.length, 4);
  let latin1 = "";
  for (let at = 0; at < bytes.length; at += 8192)
    latin1 += apply(fromCharCode, undefined, bytes.subarray(at, at + 8192));
  return host.decodeUtf8(latin1, isFatal);
};
class TextEncoder {
  get encoding() {
    return "utf-8";
  }
  encode(text = "") {
    const well = toWellFormed(toText(text));
    countWork(well.length, 4);
    return hostEncode(well);
  }
  encodeInto(text, target) {
    const well = toWellFormed(toText(text));
    let read = 0,
      written = 0;
    for (const char of well) {
      const bytes = hostEncode(char);
      if (written + bytes.length > target.length) break;
      target.set(bytes, written);
      written += bytes.length;
      read += char.length;
    }
    return { read, written };
  }
}
class TextDecoder {
  #fatal;
  #ignoreBom;
  #rest = new Uint8Array(0);
  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    if (!/^(?:utf-?8|unicode-1-1-utf-8)$/i.test(toText(label).trim()))
      throw new PrimordialRangeError(`TextDecoder: the encoding \`${label}\` is not supported; use utf-8`);
    this.#fatal = !!fatal;
    this.#ignoreBom = !!ignoreBOM;
  }
  get encoding() {
    return "utf-8";
  }
  get fatal() {
    return this.#fatal;
  }
  get ignoreBOM() {
    return this.#ignoreBom;
  }
  decode(input, { stream = false } = {}) {
    let bytes =
      input === undefined
        ? new Uint8Array(0)
        : input instanceof ArrayBuffer
          ? new Uint8Array(input)
          : new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
    if (this.#rest.length > 0) {
      const joined = new Uint8Array(this.#rest.length + bytes.length);
      joined.set(this.#rest);
      joined.set(bytes, this.#rest.length);
      bytes = joined;
    }
    let end = bytes.length;
    if (stream) {
      // An unfinished character at the end waits for the next chunk.
      for (let back = 1; back <= 3 && back <= end; back++) {
        const byte = bytes[end - back];
        if ((byte & 0xc0) === 0x80) continue;
        const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
        if (length > back) end -= back;
        break;
      }
    }
    this.#rest = bytes.slice(end);
    const text = hostDecode(bytes.subarray(0, end), this.#fatal);
    if (text === undefined) throw new PrimordialTypeError("TextDecoder: the bytes are not valid UTF-8");
    return !this.#ignoreBom && charCodeAt(text, 0) === 0xfeff ? slice(text, 1) : text;
  }
}
const BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const base64Values = new Int8Array(128).fill(-1);
for (let i = 0; i < 64; i++) base64Values[charCodeAt(BASE64, i)] = i;
const base64OfBytes = (bytes) => {
  let out = "";
  for (let i = 0; i < bytes.length; i += 3) {
    const left = bytes.length - i;
    const group = (bytes[i] << 16) | ((left > 1 ? bytes[i + 1] : 0) << 8) | (left > 2 ? bytes[i + 2] : 0);
    out +=
      BASE64[group >> 18] +
      BASE64[(group >> 12) & 63] +
      (left > 1 ? BASE64[(group >> 6) & 63] : "=") +
      (left > 2 ? BASE64[group & 63] : "=");
  }
  return out;
};
const bytesOfBase64 = (text) => {
  let clean = "";
  for (let i = 0; i < text.length; i++) {
    const code = charCodeAt(text, i);
    if (code !== 32 && (code < 9 || code > 13 || code === 11)) clean += text[i];
  }
  if (clean.length % 4 === 0 && clean.endsWith("=")) clean = slice(clean, 0, clean.endsWith("==") ? -2 : -1);
  if (clean.length % 4 === 1) throw invalidBase64();
  const bytes = new Uint8Array(nativeTrunc((clean.length * 3) / 4));
  let bits = 0,
    group = 0,
    at = 0;
  for (let i = 0; i < clean.length; i++) {
    const code = charCodeAt(clean, i),
      value = code < 128 ? base64Values[code] : -1;
    if (value < 0) throw invalidBase64();
    group = ((group << 6) | value) & 0xffffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes[at++] = (group >> bits) & 255;
    }
  }
  return bytes;
};
const invalidBase64 = () => new DOMException("atob: the text is not base64", "InvalidCharacterError");
install(globalThis, "btoa", function btoa(value) {
  const text = toText(value),
    bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) {
    const code = charCodeAt(text, i);
    if (code > 255)
      throw new DOMException("btoa: the text has characters beyond Latin-1", "InvalidCharacterError");
    bytes[i] = code;
  }
  return base64OfBytes(bytes);
});
install(globalThis, "atob", function atob(value) {
  const bytes = bytesOfBase64(toText(value));
  let text = "";
  for (let i = 0; i < bytes.length; i++) text += String.fromCharCode(bytes[i]);
  return text;
});

// Events, and what aborts work.
class Event {
  constructor(type, init = {}) {
    this.type = toText(type);
    this.cancelable = !!init.cancelable;
    this.defaultPrevented = false;
    this.target = this.currentTarget = null;
  }
  preventDefault() {
    if (this.cancelable) this.defaultPrevented = true;
  }
  stopPropagation() {}
  stopImmediatePropagation() {
    this.stopped = true;
  }
}
class EventTarget {
  #listeners = new PrimordialMap();
  addEventListener(type, listener, options) {
    if (listener == null) return;
    const list = this.#listeners.get(type) ?? [];
    if (list.some((entry) => entry.listener === listener)) return;
    this.#listeners.set(type, [...list, { listener, once: typeof options === "object" && !!options?.once }]);
  }
  removeEventListener(type, listener) {
    const list = this.#listeners.get(type);
    if (list)
      this.#listeners.set(
        type,
        list.filter((entry) => entry.listener !== listener),
      );
  }
  dispatchEvent(event) {
    event.target = event.currentTarget = this;
    const handler = this[`on${event.type}`];
    const all = this.#listeners.get(event.type) ?? [];
    for (const entry of typeof handler === "function" ? [{ listener: handler }, ...all] : all) {
      if (entry.once) this.removeEventListener(event.type, entry.listener);
      const { listener } = entry;
      if (typeof listener === "function") apply(listener, this, [event]);
      else listener.handleEvent?.(event);
      if (event.stopped) break;
    }
    return !event.defaultPrevented;
  }
}
const MAKE_SIGNAL = Symbol("AbortSignal");
let tripSignal;
const abortError = () => new DOMException("This operation was aborted", "AbortError");
class AbortSignal extends EventTarget {
  #aborted = false;
  #reason = undefined;
  onabort = null;
  constructor(key) {
    super();
    if (key !== MAKE_SIGNAL)
      throw new PrimordialTypeError("AbortSignal cannot be constructed; use AbortController");
  }
  get aborted() {
    return this.#aborted;
  }
  get reason() {
    return this.#reason;
  }
  throwIfAborted() {
    if (this.#aborted) throw this.#reason;
  }
  static abort(reason) {
    const signal = new AbortSignal(MAKE_SIGNAL);
    tripSignal(signal, reason);
    return signal;
  }
  static timeout(ms) {
    const signal = new AbortSignal(MAKE_SIGNAL);
    startTimer(
      () => tripSignal(signal, new DOMException("The operation timed out", "TimeoutError")),
      ms,
      [],
      false,
    );
    return signal;
  }
  static any(signals) {
    const any = new AbortSignal(MAKE_SIGNAL);
    for (const signal of signals) {
      if (signal.aborted) {
        tripSignal(any, signal.reason);
        break;
      }
      signal.addEventListener("abort", () => tripSignal(any, signal.reason), { once: true });
    }
    return any;
  }
  static {
    tripSignal = (signal, reason = abortError()) => {
      if (signal.#aborted) return;
      signal.#aborted = true;
      signal.#reason = reason;
      signal.dispatchEvent(new Event("abort"));
    };
  }
}
class AbortController {
  #signal = new AbortSignal(MAKE_SIGNAL);
  get signal() {
    return this.#signal;
  }
  abort(reason) {
    tripSignal(this.#signal, reason);
  }
}

// URLs are parsed by the host: the same parser that makes the requests.
const hostUrl = host.parseUrl,
  hostSetUrl = host.setUrlPart;
const invalidUrl = (text) => {
  const error = new PrimordialTypeError(`Invalid URL: ${text}`);
  error.code = "ERR_INVALID_URL";
  return error;
};
const encodeForm = (text) =>
  encodeURIComponent(toWellFormed(text)).replace(/[!'()~]|%20/g, (found) =>
    found === "%20" ? "+" : "%" + charCodeAt(found, 0).toString(16).toUpperCase(),
  );
const decodeForm = (text) => {
  const bytes = [];
  for (let i = 0; i < text.length; i++) {
    const hex = text[i] === "%" ? slice(text, i + 1, i + 3) : "";
    if (text[i] === "+") bytes.push(32);
    else if (/^[0-9a-f]{2}$/i.test(hex)) {
      bytes.push(parseInt(hex, 16));
      i += 2;
    } else for (const byte of hostEncode(toWellFormed(text[i]))) bytes.push(byte);
  }
  return hostDecode(new Uint8Array(bytes), false);
};
let connectParams;
class URLSearchParams {
  #pairs = [];
  #changed = undefined;
  static {
    connectParams = (params, changed) => {
      params.#changed = changed;
    };
  }
  constructor(init = "") {
    if (init != null && typeof init === "object") {
      const entries = typeof init[Symbol.iterator] === "function" ? init : ObjectEntries(init);
      for (const [name, value] of entries) this.#pairs.push([toText(name), toText(value)]);
    } else this.#parse(toText(init));
  }
  #parse(text) {
    const query = text[0] === "?" ? slice(text, 1) : text;
    // Well-formed text first: a surrogate pair must not be cut.
    for (const part of query.split("&")) {
      if (part === "") continue;
      const at = nativeIndexOf(part, "=");
      const [name, value] = at < 0 ? [part, ""] : [slice(part, 0, at), slice(part, at + 1)];
      this.#pairs.push([decodeForm(encodeText(name)), decodeForm(encodeText(value))]);
    }
  }
  #update() {
    this.#changed?.(this.toString());
  }
  get size() {
    return this.#pairs.length;
  }
  append(name, value) {
    this.#pairs.push([toText(name), toText(value)]);
    this.#update();
  }
  delete(name, value) {
    this.#pairs = this.#pairs.filter(
      ([key, own]) => key !== toText(name) || (value !== undefined && own !== toText(value)),
    );
    this.#update();
  }
  get(name) {
    return this.#pairs.find(([key]) => key === toText(name))?.[1] ?? null;
  }
  getAll(name) {
    return this.#pairs.filter(([key]) => key === toText(name)).map(([, value]) => value);
  }
  has(name, value) {
    return this.#pairs.some(
      ([key, own]) => key === toText(name) && (value === undefined || own === toText(value)),
    );
  }
  set(name, value) {
    const at = this.#pairs.findIndex(([key]) => key === toText(name));
    if (at < 0) this.#pairs.push([toText(name), toText(value)]);
    else {
      this.#pairs[at][1] = toText(value);
      this.#pairs = this.#pairs.filter(([key], index) => index <= at || key !== toText(name));
    }
    this.#update();
  }
  sort() {
    this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    this.#update();
  }
  forEach(callback, self) {
    for (const [name, value] of this.#pairs) apply(callback, self, [value, name, this]);
  }
  keys() {
    return this.#pairs.map(([name]) => name)[Symbol.iterator]();
  }
  values() {
    return this.#pairs.map(([, value]) => value)[Symbol.iterator]();
  }
  entries() {
    return this.#pairs.map(([name, value]) => [name, value])[Symbol.iterator]();
  }
  [Symbol.iterator]() {
    return this.entries();
  }
  toString() {
    return this.#pairs.map(([name, value]) => `${encodeForm(name)}=${encodeForm(value)}`).join("&");
  }
}
// Percent-encodes characters outside ASCII, so that decoding works byte by byte.
const encodeText = (text) =>
  text.replace(/[^\x00-\x7f]+/g, (found) => encodeURIComponent(toWellFormed(found)));
class URL {
  #parts;
  #params = undefined;
  constructor(url, base) {
    const text = toText(url);
    const parts = hostUrl(text, base === undefined ? undefined : toText(base));
    if (parts === undefined) throw invalidUrl(text);
    this.#parts = jsonParse(parts);
  }
  static canParse(url, base) {
    return hostUrl(toText(url), base === undefined ? undefined : toText(base)) !== undefined;
  }
  static parse(url, base) {
    return URL.canParse(url, base) ? new URL(url, base) : null;
  }
  #set(part, value) {
    const parts = hostSetUrl(this.#parts.href, part, toText(value));
    if (parts !== undefined) this.#parts = jsonParse(parts);
    else if (part === "href") throw invalidUrl(value);
  }
  get searchParams() {
    if (this.#params === undefined) {
      this.#params = new URLSearchParams(this.#parts.search);
      connectParams(this.#params, (query) => this.#set("search", query));
    }
    return this.#params;
  }
  get origin() {
    return this.#parts.origin;
  }
  toString() {
    return this.#parts.href;
  }
  toJSON() {
    return this.#parts.href;
  }
  static {
    for (const part of [
      "href",
      "protocol",
      "username",
      "password",
      "host",
      "hostname",
      "port",
      "pathname",
      "search",
      "hash",
    ])
      defineProperty(URL.prototype, part, {
        configurable: true,
        enumerable: true,
        get() {
          return this.#parts[part];
        },
        set(value) {
          this.#set(part, value);
          if (part === "search" || part === "href") this.#params = undefined;
        },
      });
  }
}

// Copies what the web's structured clone copies, without transferring.
install(globalThis, "structuredClone", function structuredClone(value) {
  const seen = new PrimordialMap();
  const refuse = (what) => {
    throw new DOMException(`${what} could not be cloned`, "DataCloneError");
  };
  const clone = (value) => {
    if (typeof value === "function" || typeof value === "symbol") refuse(typeof value);
    if (value === null || typeof value !== "object") return value;
    if (seen.has(value)) return seen.get(value);
    const keep = (copy) => {
      seen.set(value, copy);
      return copy;
    };
    if (value instanceof PrimordialDate) return keep(new CallDate(valueOfDate(value)));
    if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
    if (value instanceof ArrayBuffer) return keep(value.slice(0));
    if (ArrayBuffer.isView(value)) {
      const buffer = clone(value.buffer);
      return keep(new value.constructor(buffer, value.byteOffset, value.length ?? value.byteLength));
    }
    if (value instanceof PrimordialMap) {
      const copy = keep(new PrimordialMap());
      for (const [key, item] of value) copy.set(clone(key), clone(item));
      return copy;
    }
    if (value instanceof PrimordialSet) {
      const copy = keep(new PrimordialSet());
      for (const item of value) copy.add(clone(item));
      return copy;
    }
    if (value instanceof PrimordialError) {
      const copy = keep(ObjectCreate(getPrototypeOf(value)));
      for (const key of ["name", "message", "stack", "cause"])
        if (hasOwn(value, key)) install(copy, key, clone(value[key]));
      return copy;
    }
    if (value instanceof PrimordialPromise || value instanceof WeakMap || value instanceof WeakSet)
      refuse(value.constructor?.name ?? "the value");
    const copy = keep(isArray(value) ? new Array(value.length) : {});
    for (const key of ObjectKeys(value))
      defineProperty(copy, key, {
        value: clone(value[key]),
        writable: true,
        configurable: true,
        enumerable: true,
      });
    return copy;
  };
  return clone(value);
});

for (const type of [
  TextEncoder,
  TextDecoder,
  Event,
  EventTarget,
  AbortSignal,
  AbortController,
  URL,
  URLSearchParams,
])
  install(globalThis, type.name, type);

// `console` writes to the call's log.
const printable = (value) => {
  if (typeof value === "string") return value;
  if (value instanceof PrimordialError) return value.stack ? `${value}\n${value.stack}` : toText(value);
  if (typeof value === "object" && value !== null) {
    try {
      return (
        jsonStringify(value, (_, item) => (typeof item === "bigint" ? `${item}n` : item)) ?? toText(value)
      );
    } catch {
      return "[object]";
    }
  }
  return typeof value === "bigint" ? `${value}n` : toText(value);
};
const logTo =
  (level) =>
  (...values) => {
    signal("log", { level, data: values.map(printable).join(" "), logger: "console" });
  };
const console = {
  log: logTo("info"),
  info: logTo("info"),
  debug: logTo("debug"),
  trace: logTo("debug"),
  warn: logTo("warning"),
  error: logTo("error"),
  dir: logTo("info"),
  table: logTo("info"),
  assert: (condition, ...values) => {
    if (!condition) console.error("Assertion failed:", ...values);
  },
};
for (const name of [
  "group",
  "groupCollapsed",
  "groupEnd",
  "time",
  "timeEnd",
  "timeLog",
  "count",
  "countReset",
  "clear",
])
  console[name] = () => {};
install(globalThis, "console", console);
