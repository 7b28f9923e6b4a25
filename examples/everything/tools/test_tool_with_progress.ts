/** Tests progress notifications */
export default async (_: {}, ctx: Spile.Context) => {
  for (const done of [0, 50, 100]) {
    if (done > 0) await ctx.sleep(50);
    ctx.progress(done, 100, `Completed step ${done} of 100`);
  }
  return "Tool with progress executed successfully";
};
