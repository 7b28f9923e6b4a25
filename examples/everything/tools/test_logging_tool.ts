/** Logs, if the client wants to hear it */
export default (_: {}, ctx: Spile.Context) => {
  ctx.log("Diagnostic trace logging activated");
  return "Logging evaluated";
};
