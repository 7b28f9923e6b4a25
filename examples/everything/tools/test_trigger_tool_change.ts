/** Tells clients that the list of tools has changed */
export default (_: {}, ctx: Spile.Context) => {
  ctx.emit("tools-changed");
  return "Mutation triggered";
};
