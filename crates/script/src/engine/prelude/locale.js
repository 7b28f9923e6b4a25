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
// before case. Only for characters where that needs a short table: Latin letters, digits and ASCII punctuation.
const PUNCTUATION = "\t\n\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";
// Not the multiplication and division signs, and not `ĳ ŀ ŉ ſ`, which are other characters in another form.
const isLatin = /^[\t\n\r\u0020-\u007e\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u0131\u0134-\u013e\u0141-\u0148\u014a-\u017e]*$/;
const normalize = uncurry(String.prototype.normalize);
// Accents in their order, the stroke of `ø` and `đ` among them as a slash.
const ACCENTS = "\u0301\u0300\u0306\u0302\u030c\u030a\u0308\u030b\u0303\u0307/\u0327\u0328\u0304+";
// Letters that are others with an accent, `+` being more than any; or that follow another.
const WITH_ACCENT = { æ: "a+e", œ: "o+e", ß: "s+s", ø: "o/", đ: "d/", ħ: "h/", ł: "l+", ð: "d+" };
const AFTER = { ı: "i", ĸ: "q", ŋ: "n", ŧ: "t", þ: "z" };
// What a text is compared by: its letters, then all accents between them, then which letters are capitals.
const collate = (text) => {
  const decomposed = normalize(text, "NFD"),
    letters = [],
    accents = [],
    capitals = [];
  const addLetter = (primary) => {
    letters[letters.length] = primary;
    accents[accents.length] = -1;
  };
  for (const char of decomposed) {
    const lower = lowerCase(char);
    const expanded = WITH_ACCENT[lower];
    capitals[capitals.length] = lower === char ? 0 : 1;
    if (expanded !== undefined) {
      for (const part of expanded) {
        const at = nativeIndexOf(ACCENTS, part);
        if (at >= 0) accents[accents.length] = at;
        else addLetter(1000 + charCodeAt(part, 0));
      }
      continue;
    }
    const punctuation = nativeIndexOf(PUNCTUATION, char);
    if (punctuation >= 0) addLetter(punctuation);
    else {
      const at = nativeIndexOf(ACCENTS, char);
      if (at >= 0) accents[accents.length] = at;
      else if (AFTER[lower] !== undefined) addLetter(1000.5 + charCodeAt(AFTER[lower], 0));
      else addLetter((lower >= "a" ? 1000 : 100) + charCodeAt(lower, 0));
    }
  }
  return { letters, accents, capitals };
};
const compareWeights = (a, b) => {
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
        throw localeError("localeCompare of these characters");
      const left = collate(a),
        right = collate(b);
      return (
        compareWeights(left.letters, right.letters) ||
        compareWeights(left.accents, right.accents) ||
        compareWeights(left.capitals, right.capitals)
      );
    },
);
