// The tool `roll-dice`: a file of tools/ is a tool, and its default export runs the call.
// The input schema is derived from the type of the first parameter.

export const metadata = {
  title: "Roll dice",
  description: "Rolls dice and returns each number and the sum.",
  annotations: { readOnlyHint: true },
};

interface Input {
  /** How many dice. */
  count: number;
  /** How many sides each die has. */
  sides?: 4 | 6 | 8 | 10 | 12 | 20;
}

export default function rollDice({ count, sides = 6 }: Input) {
  if (count < 1 || count > 100) throw new Error("count must be between 1 and 100");
  const rolls = Array.from({ length: count }, () => 1 + Math.floor(Math.random() * sides));
  return { rolls, sum: rolls.reduce((sum, roll) => sum + roll, 0) };
}
