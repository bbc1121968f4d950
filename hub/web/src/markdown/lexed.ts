import { Lexer, type Token, type TokensList } from "marked";

/** Quotes in quotes, lists in lists. Each level costs the parser and the page some of their stack, of which a browser
 * has enough for about a thousand: a message of 2,000 `>` would otherwise break every later look at its conversation. */
const DEEPEST = 40;
/** Marks in one paragraph, cell or heading. The time that pairing them takes grows with their square: 60,000 are 50 s,
 * in which the page does nothing else. */
const MOST_MARKS = 1_000;
/** Of one word. Each of its letters might begin a mail address, so this too grows with the square. */
const LONGEST_WORD = 2_000;

const MARKS = /[*_~`[\]<>&]/g;

class BoundedLexer extends Lexer {
  private depth = 0;

  override blockTokens(source: string, tokens?: Token[], lastParagraphClipped?: boolean): Token[];
  override blockTokens(source: string, tokens?: TokensList, lastParagraphClipped?: boolean): TokensList;
  override blockTokens(source: string, tokens: Token[] = [], lastParagraphClipped?: boolean): Token[] {
    if (this.depth >= DEEPEST) return asWritten(source, tokens);
    this.depth += 1;
    try {
      return super.blockTokens(source, tokens, lastParagraphClipped);
    } finally {
      this.depth -= 1;
    }
  }

  override inlineTokens(source: string, tokens: Token[] = []): Token[] {
    const tooMuch = (source.match(MARKS)?.length ?? 0) > MOST_MARKS || source.split(/\s+/).some((word) => word.length > LONGEST_WORD);
    return tooMuch ? asWritten(source, tokens) : super.inlineTokens(source, tokens);
  }
}

/** The Markdown of whoever wrote it, taken apart in bounded time and depth; what is beyond stands there as written. */
export function lexed(text: string): Token[] {
  return new BoundedLexer().lex(text);
}

function asWritten(source: string, tokens: Token[]): Token[] {
  if (source !== "") tokens.push({ type: "text", raw: source, text: source });
  return tokens;
}
