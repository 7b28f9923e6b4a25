// Time, randomness and timers come from the call, so that a replayed call sees what it saw before. The clock
// stands still while code runs and moves when an effect completes. The time zone is UTC: a tool must not
// depend on where it runs.
const hostNow = host.now;

const localOffsetMs = (() => {
  const offset = uncurry(PrimordialDate.prototype.getTimezoneOffset);
  return (ms) => offset(new PrimordialDate(ms)) * 60000;
})();
const nativeParse = PrimordialDate.parse,
  nativeUTC = PrimordialDate.UTC;
const hasZone = /(?:Z|[+-]\d\d:?\d\d|\b(?:GMT|UTC|[ECMP][SD]T)(?:[+-]\d+)?)\s*(?:\([^)]*\))?\s*$/i;
const isDateOnly = /^[+-]?\d{4,6}(?:-\d\d(?:-\d\d)?)?$/;
const parseDate = (text) => {
  const ms = nativeParse(text);
  // Text without a zone means local time, and local time is UTC here.
  if (ms !== ms || testRegExp(hasZone, text) || testRegExp(isDateOnly, text)) return ms;
  return ms - localOffsetMs(ms);
};
const valueOfDate = uncurry(PrimordialDate.prototype.valueOf);
const isoText = uncurry(PrimordialDate.prototype.toISOString);
const utcText = uncurry(PrimordialDate.prototype.toUTCString);

function CallDate(...args) {
  if (!new.target) return dateText(new PrimordialDate(hostNow()));
  let ms;
  if (args.length === 0) ms = hostNow();
  else if (args.length > 1) ms = nativeUTC(...args);
  else {
    let [value] = args;
    if (value instanceof PrimordialDate) ms = valueOfDate(value);
    else {
      if (typeof value === "object" && value !== null) {
        const convert = value[Symbol.toPrimitive];
        value = convert != null ? apply(convert, value, ["default"]) : value.valueOf();
        if (typeof value === "object" && value !== null) value = toText(value);
      }
      ms = typeof value === "string" ? parseDate(value) : value;
    }
  }
  return construct(PrimordialDate, [ms], new.target);
}
disguise(CallDate, PrimordialDate);
CallDate.prototype = PrimordialDate.prototype;
defineProperty(CallDate, "prototype", { writable: false, enumerable: false, configurable: false });
install(PrimordialDate.prototype, "constructor", CallDate);
install(
  CallDate,
  "now",
  disguise(() => hostNow(), PrimordialDate.now),
);
install(
  CallDate,
  "parse",
  disguise((text) => parseDate(toText(text)), PrimordialDate.parse),
);
install(CallDate, "UTC", nativeUTC);
install(globalThis, "Date", CallDate);

// QuickJS leaves a date as it is where a part that is no number must make it invalid.
const setTime = uncurry(PrimordialDate.prototype.setTime);
const settingAll = (setPart) =>
  function (...args) {
    const ms = apply(setPart, this, args);
    return ms === ms ? ms : setTime(this, NaN);
  };
for (const part of ["FullYear", "Month", "Date", "Hours", "Minutes", "Seconds", "Milliseconds", "Day"]) {
  for (const verb of part === "Day" ? ["get"] : ["get", "set"]) {
    if (verb === "set") replaceMethod(PrimordialDate.prototype, `setUTC${part}`, settingAll);
    const utc = PrimordialDate.prototype[`${verb}UTC${part}`];
    replaceMethod(
      PrimordialDate.prototype,
      verb + part,
      () =>
        function (...args) {
          return apply(utc, this, args);
        },
    );
  }
}
install(PrimordialDate.prototype, "getTimezoneOffset", function getTimezoneOffset() {
  return valueOfDate(this) !== valueOfDate(this) ? NaN : 0;
});
// `Tue, 05 Mar 2024 10:00:00 GMT` → `Tue Mar 05 2024`
const datePart = (text) =>
  `${slice(text, 0, 3)} ${slice(text, 8, 11)} ${slice(text, 5, 7)} ${slice(text, 12, -13)}`;
const timePart = (text) => `${slice(text, -12, -4)} GMT+0000 (Coordinated Universal Time)`;
const orInvalid = (format) =>
  function () {
    return valueOfDate(this) !== valueOfDate(this) ? "Invalid Date" : format(utcText(this));
  };
const dateText = (date) => `${datePart(utcText(date))} ${timePart(utcText(date))}`;
replaceMethod(PrimordialDate.prototype, "toString", () =>
  orInvalid((text) => `${datePart(text)} ${timePart(text)}`),
);
replaceMethod(PrimordialDate.prototype, "toDateString", () => orInvalid(datePart));
replaceMethod(PrimordialDate.prototype, "toTimeString", () => orInvalid(timePart));

replaceMethod(Math, "random", () => () => host.random());
const performance = ObjectFreeze({
  now: () => hostNow() - host.startedAt(),
  get timeOrigin() {
    return host.startedAt();
  },
});
install(globalThis, "performance", performance);

const hostRandomBytes = host.randomBytes;
const RANDOM_BYTES_MAX = 65536;
const crypto = {
  getRandomValues(array) {
    if (!ArrayBuffer.isView(array) || array instanceof Float32Array || array instanceof Float64Array)
      throw new PrimordialTypeError("getRandomValues: expected an integer typed array");
    if (array.byteLength > RANDOM_BYTES_MAX)
      throw new PrimordialRangeError(`getRandomValues: at most ${RANDOM_BYTES_MAX} bytes at a time`);
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(hostRandomBytes(array.byteLength));
    return array;
  },
  randomUUID() {
    const bytes = hostRandomBytes(16);
    bytes[6] = (bytes[6] & 15) | 64;
    bytes[8] = (bytes[8] & 63) | 128;
    let text = "";
    for (let i = 0; i < 16; i++) {
      if (i === 4 || i === 6 || i === 8 || i === 10) text += "-";
      text += "0123456789abcdef"[bytes[i] >> 4] + "0123456789abcdef"[bytes[i] & 15];
    }
    return text;
  },
};
install(globalThis, "crypto", crypto);

// Timers are effects like any other: what fired, and in which order, is in the journal.
const timers = new PrimordialMap();
let nextTimer = 1;
const startTimer = (callback, ms, args, repeats) => {
  if (typeof callback !== "function") throw new PrimordialTypeError("a timer needs a function");
  const delay = clampIndex(ms, 0x7fffffff),
    id = nextTimer++;
  const timer = { effect: 0 };
  const arm = () => {
    timer.effect = issue("sleep", { ms: delay }, fire, () => {});
  };
  const fire = () => {
    if (!timers.has(id)) return;
    if (repeats) arm();
    else timers.delete(id);
    callback(...args);
  };
  timers.set(id, timer);
  arm();
  return id;
};
const stopTimer = (id) => {
  const timer = timers.get(id);
  if (timer !== undefined) {
    timers.delete(id);
    abandon(timer.effect);
  }
};
install(globalThis, "setTimeout", function setTimeout(callback, ms, ...args) {
  return startTimer(callback, ms, args, false);
});
install(globalThis, "setInterval", function setInterval(callback, ms, ...args) {
  return startTimer(callback, ms, args, true);
});
install(globalThis, "setImmediate", function setImmediate(callback, ...args) {
  return startTimer(callback, 0, args, false);
});
for (const name of ["clearTimeout", "clearInterval", "clearImmediate"])
  install(
    globalThis,
    name,
    {
      [name](id) {
        stopTimer(id);
      },
    }[name],
  );
const resolved = PrimordialPromise.resolve();
install(globalThis, "queueMicrotask", function queueMicrotask(callback) {
  if (typeof callback !== "function") throw new PrimordialTypeError("queueMicrotask needs a function");
  apply(promiseThen, resolved, [() => callback()]);
});
