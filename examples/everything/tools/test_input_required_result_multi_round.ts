import { NAME, ask, form } from "../lib/forms";

/** Asks one thing after the other */
export default async (_: {}, ctx: Spile.Context) => {
  const { name } = await ask(ctx, "step1", "Step 1: What is your name?", NAME);
  const COLOR = form({ color: { type: "string" } });
  const { color } = await ask(ctx, "step2", "Step 2: What is your favorite color?", COLOR);
  return `Multi-round complete for ${name} who likes ${color}`;
};
