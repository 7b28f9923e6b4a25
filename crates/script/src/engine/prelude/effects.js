// Effects: everything a tool does beyond computing. One way out, so that one journal sees all of it.
const hostIssue = host.issue,
  hostSignal = host.signal,
  hostAbandon = host.abandon,
  hostRead = host.read;
// Effect number → its callbacks. One call runs at a time.
const pending = new PrimordialMap();
let isActive = false,
  // Whether nothing of an earlier call is left in the maps of the prelude.
  isClean = true;

const encodeArguments = (value) => {
  const text = jsonStringify(value);
  if (text === undefined) throw new PrimordialTypeError("the arguments are not JSON");
  return text;
};
// Starts an effect. `onDone` and `onFailed` run when it completes; the number it returns can be abandoned.
const issue = (kind, args, onDone, onFailed) => {
  isClean = false;
  if (!isActive) throw new PrimordialError(`${kind} is available only while a call runs`);
  const number = hostIssue(kind, encodeArguments(args));
  pending.set(number, { onDone, onFailed });
  return number;
};
const abandon = (number) => {
  if (pending.delete(number)) hostAbandon(number);
};
const effect = (kind, args, abortSignal) =>
  new PrimordialPromise((resolve, reject) => {
    abortSignal?.throwIfAborted();
    // When the effect fails, nothing of the author's code is on the stack.
    const site = new PrimordialError();
    const number = issue(kind, args, resolve, (error) => {
      install(error, "stack", site.stack);
      reject(error);
    });
    abortSignal?.addEventListener(
      "abort",
      () => {
        if (pending.has(number)) {
          abandon(number);
          reject(abortSignal.reason);
        }
      },
      { once: true },
    );
  });
const effectError = (failure) => {
  const error =
    failure.code === undefined
      ? new PrimordialError(failure.message)
      : new McpError(failure.code, failure.message, failure.data);
  if (failure.name) install(error, "name", failure.name);
  if (failure.kind) install(error, "code", failure.kind);
  return error;
};
// The host delivers the result of an effect.
const deliver = (number, isOk, json) => {
  const callbacks = pending.get(number);
  if (callbacks === undefined) return;
  pending.delete(number);
  if (isOk) callbacks.onDone(jsonParse(json));
  else callbacks.onFailed(effectError(jsonParse(json)));
};
// Tells the host something and expects nothing back.
const signal = (kind, args) => {
  if (isActive) hostSignal(kind, encodeArguments(args));
};

class McpError extends PrimordialError {
  constructor(code, message = "", data = undefined) {
    super(toText(message));
    if (typeof code !== "number" || code !== nativeTrunc(code))
      throw new PrimordialTypeError("McpError: the code must be an integer");
    this.code = code;
    if (data !== undefined) this.data = data;
  }
}
install(McpError.prototype, "name", "McpError");
install(globalThis, "McpError", McpError);
