// The engine has no locale data. What needs it fails; it never answers with text of no locale.
const localeError = (what) =>
  new PrimordialError(
    `${what} is not available: this runtime has no locale data; format with toFixed, toISOString or a package`,
  );
const needsLocale = (what) => () =>
  function () {
    throw localeError(what);
  };
for (const [owner, names] of [
  [Number.prototype, ["toLocaleString"]],
  [BigInt.prototype, ["toLocaleString"]],
  [PrimordialDate.prototype, ["toLocaleString", "toLocaleDateString", "toLocaleTimeString"]],
])
  for (const name of names) replaceMethod(owner, name, needsLocale(name));
for (const [name, plain] of [
  ["toLocaleUpperCase", "toUpperCase"],
  ["toLocaleLowerCase", "toLowerCase"],
]) {
  const change = String.prototype[plain];
  replaceMethod(
    String.prototype,
    name,
    () =>
      function (locale) {
        if (locale !== undefined) throw localeError(`${name} with a locale`);
        return apply(change, this, []);
      },
  );
}
defineProperty(globalThis, "Intl", {
  configurable: true,
  enumerable: false,
  get() {
    throw localeError("Intl");
  },
  set(value) {
    install(globalThis, "Intl", value);
  },
});

// Text is compared as in the root collation, which English and most languages use: letters before accents
// before case. Only for scripts where that needs no data: Latin letters, digits and ASCII punctuation.
const PUNCTUATION = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";
const isLatin = /^[\t\n\r\u0020-\u007e\u00c0-\u017f]*$/;
const normalize = uncurry(String.prototype.normalize),
  lowerCase = uncurry(String.prototype.toLowerCase);
const replaceMarks = uncurry(RegExp.prototype[Symbol.replace]);
const marks = /[\u0300-\u036f]/g;
const special = {
  æ: "ae",
  œ: "oe",
  ß: "ss",
  ø: "o",
  đ: "d",
  ð: "d",
  þ: "th",
  ł: "l",
  ħ: "h",
  ŧ: "t",
  ı: "i",
  ĳ: "ij",
  ŋ: "n",
  ĸ: "q",
  ŉ: "n",
  ſ: "s",
};
const weigh = (char) => {
  const at = nativeIndexOf(PUNCTUATION, char);
  if (at >= 0) return at;
  const code = charCodeAt(char, 0);
  return code < 32 ? -1 : code < 58 ? 100 + code : 1000 + code;
};
const primaryKey = (text) => {
  const plain = replaceMarks(marks, normalize(lowerCase(text), "NFD"), "");
  let key = [];
  for (const char of plain) for (const letter of special[char] ?? char) key[key.length] = weigh(letter);
  return key;
};
const compareKeys = (a, b) => {
  for (let i = 0; i < a.length && i < b.length; i++) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1;
  return a.length === b.length ? 0 : a.length < b.length ? -1 : 1;
};
const isRootLocale = (locale) => locale === undefined || /^en(?:-[A-Za-z]{2})?$/.test(toText(locale));
replaceMethod(
  String.prototype,
  "localeCompare",
  () =>
    function localeCompare(other, locale, options) {
      const a = normalize(stringThis(this, "localeCompare"), "NFC"),
        b = normalize(toText(other), "NFC");
      if (a === b) return 0;
      const locales = isArray(locale) ? locale[0] : locale;
      if (!isRootLocale(locales) || options !== undefined)
        throw localeError("localeCompare with a locale or options");
      if (!testRegExp(isLatin, a) || !testRegExp(isLatin, b))
        throw localeError("localeCompare of text that is not Latin");
      const letters = compareKeys(primaryKey(a), primaryKey(b));
      if (letters !== 0) return letters;
      const accentsA = lowerCase(a),
        accentsB = lowerCase(b);
      if (accentsA !== accentsB) return normalize(accentsA, "NFD") < normalize(accentsB, "NFD") ? -1 : 1;
      // Lower case comes first.
      for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return a[i] === accentsA[i] ? -1 : 1;
      return 0;
    },
);
