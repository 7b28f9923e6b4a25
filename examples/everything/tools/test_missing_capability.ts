/** Needs a client that can sample */
export default (_: {}, ctx: Spile.Context) => {
  ctx.requires("sampling");
  return "Success";
};
