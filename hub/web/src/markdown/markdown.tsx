import type { Token, Tokens } from "marked";
import type { ComponentChildren, JSX } from "preact";
import { useMemo } from "preact/hooks";
import { CodeBlock } from "../ui/code";
import { lexed } from "./lexed";
import { safeLink } from "./links";

/** A longer text is shown as it is: parsing it at every fragment would keep a phone busy. */
const PARSED_CHARS = 200_000;

/** A model's Markdown. Every piece becomes text or an element made here; nothing is ever parsed as HTML. */
export function Markdown({ text }: { text: string }): JSX.Element {
  const tree = useMemo(() => (text.length > PARSED_CHARS ? null : rendered(text)), [text]);
  return tree === null ? <pre class="plain">{text}</pre> : <div class="markdown">{tree}</div>;
}

export function rendered(text: string): ComponentChildren[] {
  return blocks(lexed(text));
}

function blocks(tokens: readonly Token[]): ComponentChildren[] {
  return tokens.map((token, place) => <Block key={place} token={token} />);
}

function Block({ token }: { token: Token }): JSX.Element | null {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      // The page's own headings come first, so a message's begin below them.
      const level = Math.min(6, (token as Tokens.Heading).depth + 2);
      const Tag = `h${level}` as "h3";
      return <Tag>{inlines(token)}</Tag>;
    }
    case "paragraph":
      return <p>{inlines(token)}</p>;
    case "code": {
      const code = token as Tokens.Code;
      return <CodeBlock text={code.text} label={(code.lang ?? "").split(/\s/)[0] ?? ""} />;
    }
    case "blockquote":
      return <blockquote>{blocks((token as Tokens.Blockquote).tokens)}</blockquote>;
    case "list":
      return <List list={token as Tokens.List} />;
    case "table":
      return <Table table={token as Tokens.Table} />;
    case "hr":
      return <hr />;
    case "text":
      return (token as Tokens.Text).tokens ? <p class="tight">{inlines(token)}</p> : <>{plain(token)}</>;
    default:
      return <p>{token.raw}</p>;
  }
}

function List({ list }: { list: Tokens.List }): JSX.Element {
  const items = list.items.map((item, place) => (
    <li key={place} class={item.task ? "task" : undefined}>
      {item.task ? <span aria-label={item.checked ? "done" : "not done"}>{item.checked ? "☑ " : "☐ "}</span> : null}
      {blocks(item.tokens.filter((token) => token.type !== "checkbox"))}
    </li>
  ));
  if (!list.ordered) return <ul>{items}</ul>;
  return <ol start={typeof list.start === "number" ? list.start : 1}>{items}</ol>;
}

function Table({ table }: { table: Tokens.Table }): JSX.Element {
  return (
    <div class="table" tabIndex={0} role="region" aria-label="Table">
      <table>
        <thead>
          <tr>
            {table.header.map((cell, place) => (
              <th key={place} scope="col">
                {pieces(cell.tokens)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, place) => (
            <tr key={place}>
              {row.map((cell, column) => (
                <td key={column}>{pieces(cell.tokens)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function inlines(token: Token): ComponentChildren {
  const inner = (token as Tokens.Generic).tokens;
  return inner ? pieces(inner) : plain(token);
}

function pieces(tokens: readonly Token[]): ComponentChildren[] {
  return tokens.map((token, place) => <Piece key={place} token={token} />);
}

function Piece({ token }: { token: Token }): JSX.Element {
  switch (token.type) {
    case "strong":
      return <strong>{inlines(token)}</strong>;
    case "em":
      return <em>{inlines(token)}</em>;
    case "del":
      return <del>{inlines(token)}</del>;
    case "codespan":
      return <code>{plain(token)}</code>;
    case "br":
      return <br />;
    case "link":
      return <Link link={token as Tokens.Link} />;
    case "image":
      // Loading it would tell a foreign host that the message was read.
      return <span class="picture-name">[picture: {(token as Tokens.Image).text || (token as Tokens.Image).href}]</span>;
    case "text":
      return <>{inlines(token)}</>;
    default:
      return <>{plain(token)}</>;
  }
}

function Link({ link }: { link: Tokens.Link }): JSX.Element {
  const href = safeLink(link.href);
  if (href === null) return <span>{pieces(link.tokens)}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer">
      {pieces(link.tokens)}
    </a>
  );
}

function plain(token: Token): string {
  const text = (token as Tokens.Text).text;
  return token.type === "html" ? token.raw : typeof text === "string" ? unescaped(text) : token.raw;
}

const NAMED: Record<string, string> = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&nbsp;": "\u00a0" };

/** Entities that a model writes stand for their characters; as text they can do nothing. */
function unescaped(text: string): string {
  return text.replace(/&(?:amp|lt|gt|quot|#39|nbsp);/g, (entity) => NAMED[entity] ?? entity);
}
