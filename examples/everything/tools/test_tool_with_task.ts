import { askName } from "../lib/forms";

export const metadata = { task: "required" };

/** Asks first, and only then becomes a task */
export default async (_: {}, ctx: Spile.Context) => {
  const name = await askName(ctx);
  await ctx.detach();
  await ctx.sleep(100);
  return `Task finished for ${name}`;
};
