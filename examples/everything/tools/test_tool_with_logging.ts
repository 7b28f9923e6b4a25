/** Tests log messages during execution */
export default async (_: {}, ctx: Spile.Context) => {
  ctx.log("Tool execution started");
  await ctx.sleep(50);
  ctx.log("Tool processing data");
  await ctx.sleep(50);
  ctx.log("Tool execution completed");
  return "Tool with logging executed successfully";
};
