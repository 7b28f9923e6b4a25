import { ask, form } from "../lib/forms";

/** Asks, and its state must be intact */
export default async (_: {}, ctx: Spile.Context) => {
  const { ok } = await ask(ctx, "confirm", "Please confirm", form({ ok: { type: "boolean" } }));
  return `integrity-ok: state verified, confirmed: ${ok}`;
};
