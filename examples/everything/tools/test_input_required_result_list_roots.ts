/** Asks for the client's roots */
export default async (_: {}, ctx: Spile.Context) => {
  const roots = await ctx.roots("client_roots");
  return `Found ${roots.length} root(s): ${roots.map((root) => root.uri).join(", ")}`;
};
