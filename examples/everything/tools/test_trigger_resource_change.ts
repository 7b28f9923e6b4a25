/** Tells subscribers that the watched resource has changed */
export default (_: {}, ctx: Spile.Context) => {
  ctx.emit("resource-updated", "test://watched-resource");
  return "Mutation triggered";
};
