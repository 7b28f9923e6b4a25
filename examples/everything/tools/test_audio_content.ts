import { WAV } from "../lib/media";

/** Tests audio content response */
export default () => ({ content: [{ type: "audio", data: WAV, mimeType: "audio/wav" }] });
