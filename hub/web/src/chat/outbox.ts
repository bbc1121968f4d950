import { asList, asObject, asText, type Json } from "../json";
import { keep, kept } from "../kept";
import { type Picture, picturesOf } from "./items";

/** A message that nobody has acknowledged yet. It is sent again, under the same id, until somebody does. */
export interface Letter {
  readonly id: string;
  readonly text: string;
  readonly pictures: readonly Picture[];
}

export class Outbox {
  private letters: Letter[];

  /** What was left when the page was closed is taken up again. */
  constructor(private readonly name: string) {
    this.letters = read(kept(name));
  }

  get all(): readonly Letter[] {
    return this.letters;
  }

  /** False when the browser does not keep it: it is lost if the page is closed before it is sent. */
  add(letter: Letter): boolean {
    this.letters = [...this.letters, letter];
    return this.write();
  }

  remove(id: string): void {
    this.letters = this.letters.filter((letter) => letter.id !== id);
    this.write();
  }

  private write(): boolean {
    return keep(this.name, this.letters.length ? JSON.stringify(this.letters.map(({ id, ...rest }) => ({ id, content: contentOf(rest) }))) : "");
  }
}

/** A message's content on the wire: text alone as a string, with pictures as parts. */
export function contentOf(letter: { readonly text: string; readonly pictures: readonly Picture[] }): Json {
  if (!letter.pictures.length) return letter.text;
  const pictures: Json[] = letter.pictures.map(({ mediaType, data }) => ({
    type: "image",
    source: { type: "base64", media_type: mediaType, data },
  }));
  return letter.text ? [{ type: "text", text: letter.text }, ...pictures] : pictures;
}

function read(stored: string): Letter[] {
  try {
    return asList(JSON.parse(stored || "[]"))
      .map(asObject)
      .map((one) => {
        const content = one["content"];
        const first = asObject(asList(content)[0]);
        const text = typeof content === "string" ? content : asText(first["text"]);
        return { id: asText(one["id"]), text, pictures: picturesOf(content) };
      })
      .filter((letter) => letter.id);
  } catch {
    return [];
  }
}
