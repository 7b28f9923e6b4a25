import { CONFIRM, NAME, ask } from "../lib/forms";

export const metadata = { task: "optional" };

/** Asks two things at once */
export default async (_: {}, ctx: Spile.Context) => {
  const [{ name }, { confirm }] = await Promise.all([
    ask(ctx, "name", "What is your name?", NAME),
    ask(ctx, "confirm", "Are you sure?", CONFIRM),
  ]);
  return `${name} is ${confirm ? "sure" : "not sure"}`;
};
