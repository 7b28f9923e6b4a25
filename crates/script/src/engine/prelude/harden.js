// Last: no code from text, and no way to change what others rely on.
const noCode = (what) => () => {
  throw new PrimordialError(
    `${what} is not available: a tool runs only the code it was bundled with; one that needs it is named in \`permissions.eval\``,
  );
};
if (!host.allowsEval) {
  // Every path to a constructor of functions leads through one of these four prototypes.
  for (const sample of [function () {}, async function () {}, function* () {}, async function* () {}]) {
    const prototype = getPrototypeOf(sample),
      original = prototype.constructor;
    const refuse = disguise(function () {
      noCode(original.name)();
    }, original);
    defineProperty(refuse, "prototype", { value: prototype, writable: false });
    defineProperty(prototype, "constructor", { value: refuse, writable: true, configurable: true });
    if (original.name === "Function") install(globalThis, "Function", refuse);
  }
  install(globalThis, "eval", disguise(noCode("eval"), eval));
}
for (const name of ["SharedArrayBuffer", "Atomics", "WeakRef", "FinalizationRegistry"])
  delete globalThis[name];

// Long enough to reach the author's file through a package. Packages set it; the length of a stack is not theirs to decide.
const STACK_FRAMES_MAX = 50;
PrimordialError.stackTraceLimit = STACK_FRAMES_MAX;
defineProperty(PrimordialError, "stackTraceLimit", {
  configurable: true,
  enumerable: false,
  get: () => STACK_FRAMES_MAX,
  set() {},
});

// Frozen objects refuse assignment to objects that inherit from them. For the names that packages assign, the
// property becomes an accessor that puts an own property on the receiver instead.
const allowOverride = (owner, names) => {
  for (const name of names) {
    const property = getOwnPropertyDescriptor(owner, name);
    if (property === undefined || !property.configurable || !("value" in property)) continue;
    const { value } = property;
    defineProperty(owner, name, {
      configurable: true,
      enumerable: property.enumerable,
      get: () => value,
      set(replacement) {
        if (this === owner || this === null || (typeof this !== "object" && typeof this !== "function"))
          throw new PrimordialTypeError(`Cannot assign to read only property '${toText(name)}'`);
        defineProperty(this, name, {
          value: replacement,
          writable: true,
          configurable: true,
          enumerable: true,
        });
      },
    });
  }
};
allowOverride(Object.prototype, ownKeys(Object.prototype));
allowOverride(Function.prototype, ["constructor", "toString", "bind"]);
const iteratorPrototype = getPrototypeOf(getPrototypeOf([][Symbol.iterator]()));
const common = ["constructor", "toString", "toJSON", "valueOf", "toLocaleString"];
for (const owner of [
  Array,
  PrimordialPromise,
  PrimordialMap,
  PrimordialSet,
  PrimordialDate,
  RegExp,
  WeakMap,
  WeakSet,
  ArrayBuffer,
  getPrototypeOf(Uint8Array),
  EventTarget,
  Event,
  URL,
])
  allowOverride(owner.prototype, common);
allowOverride(iteratorPrototype, ["constructor", Symbol.toStringTag]);
allowOverride(Array.prototype, ["concat", "push", "splice"]);
for (const name of ownKeys(globalThis)) {
  if (name === "Intl") continue;
  const value = globalThis[name];
  if (
    typeof value === "function" &&
    (value === PrimordialError || value.prototype instanceof PrimordialError)
  )
    allowOverride(value.prototype, ["constructor", "name", "message", "toString", "code", "cause"]);
}

const hardened = new PrimordialSet([globalThis]);
const harden = (root) => {
  const todo = [root];
  while (todo.length > 0) {
    const value = todo.pop();
    if (value === null || (typeof value !== "object" && typeof value !== "function") || hardened.has(value))
      continue;
    hardened.add(value);
    // A typed array with elements cannot be frozen, and needs not be.
    if (!ArrayBuffer.isView(value)) ObjectFreeze(value);
    todo.push(getPrototypeOf(value));
    for (const key of ownKeys(value)) {
      const property = getOwnPropertyDescriptor(value, key);
      todo.push(property.value, property.get, property.set);
    }
  }
};
for (const name of ownKeys(globalThis)) if (name !== "Intl") harden(globalThis[name]);
for (const sample of [function* () {}, async function* () {}, async function () {}]) harden(sample);
for (const sample of [
  [][Symbol.iterator](),
  new PrimordialMap().entries(),
  new PrimordialSet().values(),
  ""[Symbol.iterator](),
  "".matchAll(/x/g),
])
  harden(getPrototypeOf(sample));
harden(ctx);
for (const name of ["BigInt", "BigInt64Array", "BigUint64Array"]) {
  const constructor = globalThis[name];
  defineProperty(globalThis, name, {
    configurable: true,
    enumerable: false,
    get() {
      useBigIntegers();
      return constructor;
    },
    set(replacement) {
      install(globalThis, name, replacement);
    },
  });
}
return ObjectFreeze({ register, describe, start, settle, deliver, cancel });
