// What the host calls: describe a tool, run it, deliver results to it.
let tool = undefined,
  contextFunction = undefined;
// Whether the handler gets its arguments as they are, and no context but `ctx`.
let isPlain = false;

const isStandard = (value) =>
  value != null && (typeof value === "object" || typeof value === "function") && value["~standard"] != null;
const isShape = (value) =>
  value != null &&
  typeof value === "object" &&
  !isArray(value) &&
  ObjectKeys(value).length > 0 &&
  ObjectKeys(value).every((key) => isStandard(value[key]));
// `export const schema = { name: z.string() }`: the shape itself is the input, unless it says `input` or
// `output`.
const isBareInput = (declared) =>
  isStandard(declared) ||
  (isShape(declared) && !ObjectKeys(declared).every((key) => key === "input" || key === "output"));
const inputOf = (declared) => (isBareInput(declared) ? declared : declared?.input);
const standardSchema = (value, direction) => {
  const convert = value["~standard"].jsonSchema?.[direction];
  if (typeof convert !== "function") {
    const vendor = value["~standard"].vendor ?? "the library";
    throw new PrimordialTypeError(
      `the schema is of ${vendor}, which does not offer Standard JSON Schema in this version; ` +
        (vendor === "zod" ? "use zod 4.2 or newer, or z.toJSONSchema(…)" : "give a JSON Schema instead"),
    );
  }
  const {
    $schema,
    "~standard": _,
    ...schema
  } = apply(convert, value["~standard"].jsonSchema, [{ target: "draft-2020-12" }]);
  return schema;
};
// A library says in its own way whether a field may be absent; validating `undefined` asks all of them.
const isOptional = (value) => {
  const result = value["~standard"].validate(undefined);
  return !(result instanceof PrimordialPromise) && result.issues === undefined;
};
const schemaOf = (value, direction) => {
  if (isStandard(value)) return standardSchema(value, direction);
  if (isShape(value)) {
    const properties = {},
      required = [];
    for (const key of ObjectKeys(value)) {
      properties[key] = standardSchema(value[key], direction);
      if (!isOptional(value[key])) required.push(key);
    }
    return { type: "object", properties, required };
  }
  return value;
};

const describe = () => {
  const handler = tool.default;
  const declared = tool.schema;
  if (declared !== undefined && (declared === null || typeof declared !== "object"))
    throw new PrimordialTypeError("`schema` must be an object with `input` and `output`");
  const input = inputOf(declared),
    output = isBareInput(declared) ? undefined : declared?.output;
  return encodeArguments({
    handler: typeof handler,
    input: input === undefined ? null : schemaOf(input, "input"),
    output: output === undefined ? null : schemaOf(output, "output"),
    metadata: tool.metadata ?? null,
  });
};

class InvalidArguments extends PrimordialError {
  constructor(issues) {
    super("invalid arguments");
    this.issues = issues;
  }
}
const pathOf = (issue) =>
  (issue.path ?? []).map((part) => toText(typeof part === "object" ? part.key : part)).join(".");
const checked = async (validator, value, prefix) => {
  const result = await validator["~standard"].validate(value);
  if (result.issues !== undefined)
    throw new InvalidArguments(
      [...result.issues].map((issue) => ({
        field: [prefix, pathOf(issue)].filter((part) => part !== "").join("."),
        message: toText(issue.message),
      })),
    );
  return result.value;
};
// A schema that is code also converts: defaults, coercions, transforms.
const parseArguments = async (args) => {
  const input = inputOf(tool.schema);
  if (isStandard(input)) return checked(input, args, "");
  if (!isShape(input)) return args;
  const parsed = {};
  for (const key of ObjectKeys(input)) {
    const value = await checked(input[key], args[key], key);
    if (value !== undefined || hasOwn(args, key)) parsed[key] = value;
  }
  return parsed;
};

const needsParsing = () => {
  const input = inputOf(tool.schema);
  return isStandard(input) || isShape(input);
};
const run = async (args) => {
  const input = needsParsing() ? await parseArguments(args) : args;
  let second = ctx;
  if (contextFunction !== undefined) {
    const context = await contextFunction(currentRequest(), ctx);
    if (context != null && typeof context !== "object")
      throw new PrimordialTypeError("the context function must return an object");
    second = ObjectCreate(ctx);
    for (const key of ObjectKeys(context ?? {})) install(second, key, context[key]);
  }
  return tool.default(input, second, ctx);
};

const CLASSES = [
  ["McpError", McpError],
  ["InvalidArguments", InvalidArguments],
];
// Nobody reads more of an error, and nothing else bounds it.
const ERROR_TEXT_CHARS_MAX = 8192,
  ERROR_STACK_CHARS_MAX = 65536,
  ERROR_DATA_CHARS_MAX = 1 << 20;
const cut = (text, most) => toWellFormed(text.length > most ? `${slice(text, 0, most)}…` : text);
const describeError = (error) => {
  const out = { class: "value", message: "", stack: "" };
  try {
    if (
      error instanceof PrimordialError ||
      (typeof DOMException === "function" && error instanceof DOMException)
    ) {
      out.class = CLASSES.find(([, type]) => error instanceof type)?.[0] ?? "Error";
      if (out.class === "Error")
        for (const type of [TypeError, RangeError, SyntaxError, ReferenceError, EvalError, URIError])
          if (error instanceof type) out.class = type.name;
      if (error.constructor?.name === "InternalError") out.class = "InternalError";
      out.message = cut(toText(error.message), ERROR_TEXT_CHARS_MAX);
      out.stack = cut(toText(error.stack ?? ""), ERROR_STACK_CHARS_MAX);
      if (out.class === "McpError") {
        out.code = error.code;
        if (error[REQUIRES] !== undefined) out.missing = error[REQUIRES];
        const data = error.data === undefined ? undefined : jsonStringify(error.data);
        if (data !== undefined && data.length > ERROR_DATA_CHARS_MAX) {
          out.class = "RangeError";
          out.message = `McpError: \`data\` has more than ${ERROR_DATA_CHARS_MAX} characters`;
        } else if (data !== undefined) out.data = data;
      }
      // The first one is what the caller hears of.
      if (out.class === "InvalidArguments")
        out.issues = error.issues.slice(0, 1).map(({ field, message }) => ({
          field: cut(field, ERROR_TEXT_CHARS_MAX),
          message: cut(message, ERROR_TEXT_CHARS_MAX),
        }));
      if (out.class !== "McpError" && typeof error.code === "string") out.kind = cut(error.code, ERROR_TEXT_CHARS_MAX);
    } else out.message = cut(typeof error === "string" ? error : printable(error), ERROR_TEXT_CHARS_MAX);
  } catch {
    out.message ||= "an error that cannot be described";
  }
  return jsonStringify(out);
};
// The same numbers in sandbox.rs.
const RETURNED_JSON = 0,
  RETURNED_TEXT = 1,
  RETURNED_BYTES = 2,
  RETURNED_NOTHING = 3;
const hostFinish = host.finish;
const finish = (value) => {
  let kind = RETURNED_JSON,
    text;
  try {
    if (value === undefined) {
      kind = RETURNED_NOTHING;
      text = "";
    } else if (typeof value === "string") {
      kind = RETURNED_TEXT;
      text = toWellFormed(value);
    } else if (typeof value === "bigint") {
      kind = RETURNED_TEXT;
      text = toText(value);
    } else if (ArrayBuffer.isView(value)) {
      kind = RETURNED_BYTES;
      text = base64OfBytes(new Uint8Array(value.buffer, value.byteOffset, value.byteLength));
    } else text = jsonStringify(value);
    if (text === undefined)
      throw new PrimordialTypeError(`the handler returned a ${typeof value}, which is not JSON`);
  } catch (error) {
    return fail(error);
  }
  isActive = false;
  hostFinish(kind, text);
};
const fail = (error) => {
  isActive = false;
  host.fail(describeError(error));
};
// What a handler returned or threw without waiting for anything.
let settledValue = undefined,
  hasThrown = false;
const isPromise = (value) => value instanceof PrimordialPromise;
const isThenable = (value) =>
  value != null &&
  (typeof value === "object" || typeof value === "function") &&
  typeof value.then === "function";
const adopt = async (value) => value;
// Returns whether the handler has ended. The host then calls `settle`, after what the handler left in the queue.
const start = (args, request) => {
  // Most calls leave nothing behind.
  if (!isClean) {
    askedKeys.clear();
    pending.clear();
    timers.clear();
    isClean = true;
  }
  isActive = true;
  unannouncedWork = 0;
  callSignal = undefined;
  callRequest = undefined;
  requestText = request;
  hasThrown = false;
  try {
    const input = jsonParse(args);
    const value = isPlain ? tool.default(input, ctx, ctx) : run(input);
    if (isPromise(value)) apply(promiseThen, value, [finish, fail]);
    else if (isThenable(value)) apply(promiseThen, adopt(value), [finish, fail]);
    else {
      settledValue = value;
      return true;
    }
    return false;
  } catch (error) {
    settledValue = error;
    hasThrown = true;
    return true;
  }
};
const settle = () => {
  const value = settledValue;
  settledValue = undefined;
  if (hasThrown) fail(value);
  else finish(value);
};
const cancel = () => {
  tripSignal(currentSignal(), new DOMException("the call was cancelled", "AbortError"));
};
const register = (toolModule, contextModule) => {
  tool = toolModule;
  if (contextModule !== undefined) {
    if (typeof contextModule.default !== "function")
      throw new PrimordialTypeError("the context file must export a default function");
    contextFunction = contextModule.default;
  }
  try {
    isPlain = contextFunction === undefined && !needsParsing();
  } catch {
    // A schema that throws when it is read: every call says so.
  }
};
