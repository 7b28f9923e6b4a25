// Everything the prelude itself calls, captured before author code can replace it.
const ObjectFreeze = Object.freeze,
  ObjectKeys = Object.keys,
  ObjectCreate = Object.create;
const ObjectAssign = Object.assign,
  ObjectEntries = Object.entries;
const defineProperty = Object.defineProperty,
  getOwnPropertyDescriptor = Object.getOwnPropertyDescriptor;
const getPrototypeOf = Object.getPrototypeOf,
  setPrototypeOf = Object.setPrototypeOf,
  ownKeys = Reflect.ownKeys;
const apply = Reflect.apply,
  construct = Reflect.construct;
const isArray = Array.isArray;
const jsonParse = JSON.parse,
  jsonStringify = JSON.stringify;
const PrimordialPromise = Promise,
  PrimordialMap = Map,
  PrimordialSet = Set,
  PrimordialDate = Date;
const PrimordialError = Error,
  PrimordialTypeError = TypeError,
  PrimordialRangeError = RangeError;
const promiseThen = Promise.prototype.then;
const toText = String;
// `f(this, …)` for the methods that the prelude needs later.
const uncurry =
  (method) =>
  (self, ...args) =>
    apply(method, self, args);
const charCodeAt = uncurry(String.prototype.charCodeAt),
  slice = uncurry(String.prototype.slice);
const toWellFormed = uncurry(String.prototype.toWellFormed);
const hasOwn = Object.hasOwn;

// A global or a method that author code sees as built in: not enumerable, and replaceable in its own global
// object.
const install = (target, name, value) =>
  defineProperty(target, name, { value, writable: true, configurable: true, enumerable: false });
// Makes a replacement look like the function it replaces.
const disguise = (replacement, original) => {
  defineProperty(replacement, "name", { value: original.name, configurable: true });
  defineProperty(replacement, "length", { value: original.length, configurable: true });
  return replacement;
};
const replaceMethod = (target, name, make) => {
  const original = target[name];
  if (typeof original === "function") install(target, name, disguise(make(original), original));
};
