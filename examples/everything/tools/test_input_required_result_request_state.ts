import { ask, form } from "../lib/forms";

/** Asks, and relies on its state */
export default async (_: {}, ctx: Spile.Context) => {
  const { ok } = await ask(ctx, "confirm", "Please confirm", form({ ok: { type: "boolean" } }));
  return `state-ok: requestState validated, confirmed: ${ok}`;
};
