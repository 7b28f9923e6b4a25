/** Greets at once, never as a task */
export default ({ name }: { name: string }) => `Hello, ${name}!`;
