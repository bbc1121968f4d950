import { render } from "preact";
import { App } from "./app";
import { asObject, asText } from "./json";
import { go } from "./route";
import "./style.css";

const root = document.getElementById("app");
if (root) render(<App />, root);

// Only in secure contexts; elsewhere the page works without.
if ("serviceWorker" in navigator) {
  navigator.serviceWorker.addEventListener("message", (event) => {
    const path = asText(asObject(event.data)["open"]);
    if (path.startsWith("#/m/")) go(path);
  });
  void navigator.serviceWorker
    .register("/sw.js")
    .then(() => navigator.serviceWorker.ready)
    .then((ready) => {
      const files = [...document.querySelectorAll<HTMLScriptElement | HTMLLinkElement>("script[src], link[rel=stylesheet]")].map(
        (element) => new URL(element instanceof HTMLScriptElement ? element.src : element.href).pathname,
      );
      ready.active?.postMessage({ files });
    })
    .catch(() => undefined);
}
