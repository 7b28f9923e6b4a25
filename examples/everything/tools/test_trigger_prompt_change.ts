/** Tells clients that the list of prompts has changed */
export default (_: {}, ctx: Spile.Context) => {
  ctx.emit("prompts-changed");
  return "Mutation triggered";
};
