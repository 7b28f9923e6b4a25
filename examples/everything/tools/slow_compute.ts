export const metadata = { task: "optional" };

type Arguments = {
  /**
   * @minimum 0
   * @maximum 3600
   */
  seconds?: number;
  label?: string;
};

/** Takes as many seconds as it is told to */
export default async ({ seconds = 0, label = "" }: Arguments, ctx: Spile.Context) => {
  await ctx.sleep(seconds * 1000);
  return `Computed \`${label}\` in ${seconds} s`;
};
