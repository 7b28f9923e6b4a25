import { askName } from "../lib/forms";

/** Says something on its stream, then asks */
export default async (_: {}, ctx: Spile.Context) => {
  ctx.progress(50, 100);
  await ctx.sleep(20);
  return `Streaming complete, ${await askName(ctx)}`;
};
