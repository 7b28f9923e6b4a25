// Built-ins whose C loops never ask whether the call's time is up, replaced by versions that do or that
// refuse.

// A search of an n-character needle takes n steps per position at worst. Beyond this product, a linear search
// in JavaScript, which can be interrupted, takes over.
const SEARCH_STEPS_MAX = 1 << 24;
// A dense array of this length does not fit into memory, so a longer one is sparse or not an array at all.
const ARRAY_LENGTH_MAX = 1 << 23;
// A call announces work on more characters or elements than this at once, and each further part of this much work. One on the
// thread of its connection starts over on a thread for scripts then, and one without processor time left ends, however rarely
// the interpreter asks.
const QUICK_LENGTH_MAX = 1 << 16;
// In units of about 10 ns.
const UNANNOUNCED_WORK_MAX = 1 << 18;
const hostAnnounceWork = host.announceWork;
let unannouncedWork = 0;
const announceWork = () => {
  // Whoever catches the error does not go on.
  unannouncedWork = Infinity;
  hostAnnounceWork();
  unannouncedWork = 0;
};
// Work that grows with `length`; `units` for each character or element.
const countWork = (length, units = 1) => {
  if (length > QUICK_LENGTH_MAX) announceWork();
  else if (length > 0 && (unannouncedWork += length * units) > UNANNOUNCED_WORK_MAX) announceWork();
};

// Knuth, Morris and Pratt: the needle's codes, and how far to fall back after a mismatch at each of them.
// Methods of strings are called as such, because nobody can replace them once the prelude has run.
const compileNeedle = (needle, isBackwards = false) => {
  const codes = new Uint16Array(needle.length),
    fallback = new Int32Array(needle.length),
    last = codes.length - 1;
  for (let i = 0; i <= last; i++) codes[i] = needle.charCodeAt(isBackwards ? last - i : i);
  for (let i = 1, k = 0; i < codes.length; i++) {
    while (k > 0 && codes[i] !== codes[k]) k = fallback[k - 1];
    if (codes[i] === codes[k]) k++;
    fallback[i] = k;
  }
  return { codes, fallback };
};
const linearIndexOf = (text, needle, from, { codes, fallback } = compileNeedle(needle)) => {
  const end = codes.length;
  for (let i = from, k = 0, length = text.length; i < length; i++) {
    const code = text.charCodeAt(i);
    while (k > 0 && code !== codes[k]) k = fallback[k - 1];
    if (code === codes[k]) k++;
    if (k === end) return i - k + 1;
  }
  return -1;
};
// The last match that begins at `limit` or before: the same search from the end.
const linearLastIndexOf = (text, needle, limit) => {
  const { codes, fallback } = compileNeedle(needle, true),
    end = codes.length;
  for (let i = (limit + end > text.length ? text.length : limit + end) - 1, k = 0; i >= 0; i--) {
    const code = text.charCodeAt(i);
    while (k > 0 && code !== codes[k]) k = fallback[k - 1];
    if (code === codes[k]) k++;
    if (k === end) return i;
  }
  return -1;
};
const nativeIndexOf = uncurry(String.prototype.indexOf),
  lowerCase = uncurry(String.prototype.toLowerCase);
const isShortSearch = (text, needle) => {
  countWork(text.length, needle.length < 32 ? 0.25 : 4);
  return needle.length < 32 || text.length * needle.length <= SEARCH_STEPS_MAX;
};
const clampIndex = (position, length) => {
  const index = +position || 0;
  return index < 0 ? 0 : index > length ? length : Math.trunc(index);
};
const boundedIndexOf = (text, needle, from = 0) =>
  isShortSearch(text, needle) ? nativeIndexOf(text, needle, from) : linearIndexOf(text, needle, from);
const isRegExp = (value) => value != null && typeof value === "object" && value[Symbol.match] !== undefined;

const nativeTrunc = Math.trunc;
const nativeSlice = uncurry(Array.prototype.slice);
const testRegExp = uncurry(RegExp.prototype.test);
const stringThis = (self, method) => {
  if (self == null) throw new PrimordialTypeError(`String.prototype.${method} called on null or undefined`);
  return toText(self);
};

replaceMethod(
  String.prototype,
  "indexOf",
  (original) =>
    function indexOf(needle, position) {
      const text = stringThis(this, "indexOf"),
        search = toText(needle);
      if (isShortSearch(text, search)) return apply(original, text, [search, position]);
      return linearIndexOf(text, search, clampIndex(position, text.length));
    },
);
replaceMethod(
  String.prototype,
  "includes",
  (original) =>
    function includes(needle, position) {
      const text = stringThis(this, "includes");
      if (isRegExp(needle)) return apply(original, text, [needle, position]);
      const search = toText(needle);
      if (isShortSearch(text, search)) return apply(original, text, [search, position]);
      return linearIndexOf(text, search, clampIndex(position, text.length)) >= 0;
    },
);
replaceMethod(
  String.prototype,
  "lastIndexOf",
  (original) =>
    function lastIndexOf(needle, position) {
      const text = stringThis(this, "lastIndexOf"),
        search = toText(needle);
      if (isShortSearch(text, search)) return apply(original, text, [search, position]);
      const number = +position;
      const limit = number !== number ? text.length : clampIndex(number, text.length);
      return linearLastIndexOf(text, search, limit);
    },
);
replaceMethod(
  String.prototype,
  "split",
  (original) =>
    function split(separator, limit) {
      if (separator != null && typeof separator === "object")
        return apply(original, this, [separator, limit]);
      const text = stringThis(this, "split"),
        search = toText(separator);
      if (separator === undefined || isShortSearch(text, search))
        return apply(original, text, [separator, limit]);
      const most = limit === undefined ? 0xffffffff : limit >>> 0,
        parts = [],
        compiled = compileNeedle(search);
      let from = 0;
      for (
        let at;
        parts.length < most && (at = linearIndexOf(text, search, from, compiled)) >= 0;
        from = at + search.length
      )
        parts[parts.length] = slice(text, from, at);
      if (parts.length < most) parts[parts.length] = slice(text, from);
      return parts;
    },
);
const expand = (template, matched, at, text) => {
  if (nativeIndexOf(template, "$") < 0) return template;
  let out = "";
  for (let i = 0; i < template.length; i++) {
    const next = template[i] === "$" ? template[i + 1] : undefined;
    if (next === "$") out += "$";
    else if (next === "&") out += matched;
    else if (next === "`") out += slice(text, 0, at);
    else if (next === "'") out += slice(text, at + matched.length);
    else {
      out += template[i];
      continue;
    }
    i++;
  }
  return out;
};
const replaceWith = (name, isAll) => (original) =>
  function (pattern, replacement) {
    if (pattern != null && typeof pattern === "object") return apply(original, this, [pattern, replacement]);
    const text = stringThis(this, name),
      search = toText(pattern);
    // Even a short needle can be found often: each replacement function is author code and can be
    // interrupted.
    if (isShortSearch(text, search)) return apply(original, text, [search, replacement]);
    const template = typeof replacement === "function" ? undefined : toText(replacement);
    const compiled = compileNeedle(search);
    let out = "",
      from = 0,
      at = linearIndexOf(text, search, 0, compiled);
    while (at >= 0) {
      out +=
        slice(text, from, at) +
        (template === undefined ? toText(replacement(search, at, text)) : expand(template, search, at, text));
      from = at + search.length;
      at = isAll ? linearIndexOf(text, search, from, compiled) : -1;
    }
    return out + slice(text, from);
  };
replaceMethod(String.prototype, "replace", replaceWith("replace", false));
replaceMethod(String.prototype, "replaceAll", replaceWith("replaceAll", true));

// These visit every index below `length`, whether or not there is an element.
const checkLength = (name, list, units) => {
  const length = list == null ? 0 : list.length;
  if (length > ARRAY_LENGTH_MAX)
    throw new PrimordialRangeError(`${name}: the array is too long; the limit is ${ARRAY_LENGTH_MAX}`);
  countWork(length, units);
};
const boundLength = (name, units) => (original) =>
  function (...args) {
    checkLength(name, this, units);
    return apply(original, this, args);
  };
// Each element becomes a text.
for (const name of ["join", "toLocaleString"]) replaceMethod(Array.prototype, name, boundLength(name, 16));
for (const name of [
  "indexOf",
  "lastIndexOf",
  "includes",
  "reverse",
  "fill",
  "copyWithin",
  "slice",
  "splice",
  "concat",
  "forEach",
  "map",
  "filter",
  "some",
  "every",
  "find",
  "findIndex",
  "findLast",
  "findLastIndex",
  "reduce",
  "reduceRight",
  "flatMap",
  "shift",
  "unshift",
  "toReversed",
  "toSpliced",
  "with",
])
  replaceMethod(Array.prototype, name, boundLength(name));

// For each element: its comparisons, each of which makes texts of two numbers.
const SORT_UNITS = 64;
// Long texts, and what becomes a text, are compared by a function, which can be interrupted.
const SORTED_TEXT_MAX = 1 << 10;
const isSlowToCompare = (value) =>
  typeof value === "string" ? value.length > SORTED_TEXT_MAX : typeof value === "object" && value !== null;
const compareTexts = (a, b) => {
  const left = toText(a),
    right = toText(b);
  countWork(left.length < right.length ? left.length : right.length, 0.25);
  return left < right ? -1 : left > right ? 1 : 0;
};
for (const name of ["sort", "toSorted"])
  replaceMethod(
    Array.prototype,
    name,
    (original) =>
      function (compare) {
        checkLength(name, this, SORT_UNITS);
        let order = compare;
        if (compare === undefined && this != null)
          for (let i = 0, length = this.length; i < length && order === undefined; i++)
            if (isSlowToCompare(this[i])) order = compareTexts;
        return apply(original, this, [order]);
      },
  );
// One level is a loop; more of them visit a list as often as it occurs.
replaceMethod(
  Array.prototype,
  "flat",
  (original) =>
    function flat(depth) {
      checkLength("flat", this);
      const levels = depth === undefined ? 1 : +depth;
      if (!(levels > 1) || !isArray(this)) return apply(original, this, [depth]);
      const flattened = nativeSlice(this, 0, 0);
      const add = (list, left) => {
        for (let i = 0; i < list.length; i++) {
          if (!(i in list)) continue;
          const value = list[i];
          if (left >= 1 && isArray(value)) add(value, left - 1);
          else flattened[flattened.length] = value;
        }
      };
      add(this, levels);
      return flattened;
    },
);

// What makes long texts, or takes them apart, at once.
const announceLength = (original) =>
  function (count, ...more) {
    countWork(+count);
    return apply(original, this, [count, ...more]);
  };
for (const name of ["repeat", "padStart", "padEnd"]) replaceMethod(String.prototype, name, announceLength);
// What visits each character of a text.
const countText = (name) => (original) =>
  function (...args) {
    const text = stringThis(this, name);
    countWork(text.length, 4);
    return apply(original, text, args);
  };
for (const name of ["isWellFormed", "toLowerCase", "toUpperCase", "toWellFormed", "trim", "trimEnd", "trimStart"])
  replaceMethod(String.prototype, name, countText(name));
for (const name of ["decodeURI", "decodeURIComponent", "encodeURI", "encodeURIComponent", "escape", "unescape"])
  replaceMethod(
    globalThis,
    name,
    (original) =>
      (value) => {
        const text = `${value}`;
        countWork(text.length, 8);
        return original(text);
      },
  );
replaceMethod(JSON, "parse", (original) => function parse(text, ...more) {
  const json = `${text}`;
  countWork(json.length, 4);
  return apply(original, this, [json, ...more]);
});
replaceMethod(JSON, "stringify", (original) => function stringify(value, replacer, space) {
  // Every index of a list of names is read before anything is written.
  if (isArray(replacer)) checkLength("JSON.stringify", replacer);
  const json = apply(original, this, [value, replacer, space]);
  // Its length is known only now.
  if (json !== undefined) countWork(json.length);
  return json;
});
replaceMethod(
  String,
  "raw",
  () =>
    function raw(template, ...values) {
      const parts = template.raw,
        length = +parts.length || 0;
      let text = "";
      for (let i = 0; i < length; i++) {
        text += toText(parts[i]);
        if (i + 1 < length && i < values.length) text += toText(values[i]);
      }
      return text;
    },
);
// The marks of one letter are put in order one by one, each past all that follow it.
const MARKS_MAX = 1 << 12;
const PrimordialRegExp = RegExp;
let manyMarks;
replaceMethod(
  String.prototype,
  "normalize",
  (original) =>
    function normalize(form) {
      const text = stringThis(this, "normalize");
      countWork(text.length, 16);
      if (text.length > MARKS_MAX) {
        manyMarks ??= new PrimordialRegExp(`[\\p{M}\\uff9e\\uff9f]{${MARKS_MAX}}`, "u");
        if (testRegExp(manyMarks, text))
          throw new PrimordialRangeError(`normalize: a letter has more than ${MARKS_MAX} marks`);
      }
      return apply(original, text, [form]);
    },
);
for (const name of [
  "sort",
  "toSorted",
  "join",
  "indexOf",
  "lastIndexOf",
  "includes",
  "fill",
  "reverse",
  "toReversed",
  "copyWithin",
])
  replaceMethod(
    getPrototypeOf(Uint8Array.prototype),
    name,
    (original) =>
      function (...args) {
        if (ArrayBuffer.isView(this)) {
          if (name === "sort" || name === "toSorted") checkLength(name, this, SORT_UNITS);
          else countWork(this.length, name === "join" ? 16 : 1);
        }
        return apply(original, this, args);
      },
  );

// Operators on big integers cannot be replaced, so a call on the thread of its connection gets none. `harden.js` does the same
// for the constructors.
const useBigIntegers = host.useBigIntegers;
for (const name of ["getBigInt64", "getBigUint64", "setBigInt64", "setBigUint64"])
  replaceMethod(
    DataView.prototype,
    name,
    (original) =>
      function (...args) {
        useBigIntegers();
        return apply(original, this, args);
      },
  );
// Decimal digits of a number of n bits take n² steps.
const BIGINT_HEX_DIGITS_MAX = 1 << 15;
const bigIntHex = uncurry(BigInt.prototype.toString);
replaceMethod(
  BigInt.prototype,
  "toString",
  (original) =>
    function toString(radix) {
      // A power of two as radix takes linear time.
      if (radix === 2 || radix === 4 || radix === 8 || radix === 16 || radix === 32)
        return apply(original, this, [radix]);
      if (bigIntHex(this, 16).length > BIGINT_HEX_DIGITS_MAX)
        throw new PrimordialRangeError(
          "BigInt.prototype.toString: the number has too many digits; use radix 16",
        );
      return apply(original, this, radix === undefined ? [] : [radix]);
    },
);
