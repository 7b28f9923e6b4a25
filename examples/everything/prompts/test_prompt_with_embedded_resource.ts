type Arguments = {
  /** URI of the resource to embed */
  resourceUri: string;
};

/** A prompt that includes an embedded resource */
export default ({ resourceUri }: Arguments) => [
  {
    type: "resource",
    resource: {
      uri: resourceUri,
      mimeType: "text/plain",
      text: "Embedded resource content for testing.",
    },
  },
  "Please process the embedded resource above.",
];
