export default ({ id }: { id: string }) => ({
  mimeType: "application/json",
  text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }),
});
