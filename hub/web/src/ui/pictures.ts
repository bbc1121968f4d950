import type { Picture } from "../chat/items";

/** The longest side models look at in full, and a size that many pictures in one message still fit through. */
const LONGEST_SIDE = 1568;
const QUALITY = 0.85;
const FILE_BYTES = 40 * 1024 * 1024;
export const PICTURES = 6;
/** Of one message, as sent: the hub keeps at most 8 MiB for a machine that sleeps, and the text needs room too. */
const TOGETHER_CHARS = 7_500_000;

/** Why one picture more is too much for one message; empty when it is not. */
export function tooMuch(pictures: readonly Picture[], more: Picture): string {
  if (pictures.length >= PICTURES) return `one message holds at most ${PICTURES} pictures; send the others after it.`;
  const together = [...pictures, more].reduce((sum, one) => sum + one.data.length, 0);
  return together > TOGETHER_CHARS ? "the pictures are too large together; send it in a message of its own." : "";
}

/** A picked file as a picture for the model: made smaller, without what the camera wrote into it. Throws Error with
 * words for the person. */
export async function pictureFrom(file: File): Promise<Picture> {
  if (file.size > FILE_BYTES) throw new Error(`${file.name} is larger than 40 MB: make it smaller first.`);
  let image: ImageBitmap;
  try {
    image = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name} is not a picture this browser can read; JPEG, PNG, WebP and GIF work everywhere.`);
  }
  const scale = Math.min(1, LONGEST_SIDE / Math.max(image.width, image.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(image.width * scale));
  canvas.height = Math.max(1, Math.round(image.height * scale));
  const context = canvas.getContext("2d");
  if (context === null) throw new Error("This browser cannot make pictures smaller.");
  // A transparent picture would become black as JPEG.
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  image.close();
  const data = canvas.toDataURL("image/jpeg", QUALITY).split(",")[1] ?? "";
  return { mediaType: "image/jpeg", data };
}
