export const metadata = { task: "required" };

/** Runs for a second and then fails as a tool */
export default async (_: {}, ctx: Spile.Context) => {
  await ctx.sleep(1000);
  throw new Error("The job failed, as it always does");
};
