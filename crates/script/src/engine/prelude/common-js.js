// `require` between the CommonJS files of a program.
const definitions = new Map(),
  loaded = new Map();
export function define(id, run, links) {
  if (!definitions.has(id)) definitions.set(id, { run, links });
}
export function load(id) {
  const cached = loaded.get(id);
  // A cycle sees the exports so far, as in Node.
  if (cached !== undefined) return cached.exports;
  const { run, links } = definitions.get(id);
  const module = { id, exports: {}, loaded: false };
  loaded.set(id, module);
  const require = (specifier) => {
    const target = Object.hasOwn(links, specifier) ? links[specifier] : undefined;
    if (target !== undefined && definitions.has(target)) return load(target);
    const reason = target === undefined ? "it was not bundled" : "it is an ES module";
    throw Object.assign(new Error(`cannot require "${specifier}" in ${id}: ${reason}`), {
      code: "MODULE_NOT_FOUND",
    });
  };
  try {
    run.call(module.exports, module.exports, require, module, id, id.replace(/\/[^/]*$/, ""));
  } catch (error) {
    loaded.delete(id);
    throw error;
  }
  module.loaded = true;
  return module.exports;
}
