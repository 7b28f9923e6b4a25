import { CONFIRM, ask } from "../lib/forms";

export const metadata = { task: "optional" };

/** Asks before it deletes (nothing) */
export default async ({ filename }: { filename: string }, ctx: Spile.Context) => {
  const { confirm } = await ask(ctx, "confirm", `Delete ${filename}?`, CONFIRM);
  return confirm ? `Deleted ${filename}` : `Kept ${filename}`;
};
