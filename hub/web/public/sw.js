// Keeps the page's own files, so that it opens without a connection. Never an answer of the hub's routes.
const CACHE = "lodger-shell-1";

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(["/", "/icon.svg", "/manifest.webmanifest"])));
  self.skipWaiting();
});

self.addEventListener("activate", (event) => {
  event.waitUntil(
    caches
      .keys()
      .then((names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name))))
      .then(() => self.clients.claim()),
  );
});

// The page says which files it consists of: those are kept, what an older build left is dropped.
self.addEventListener("message", (event) => {
  const files = event.data && event.data.files;
  if (!Array.isArray(files)) return;
  const wanted = files.filter((file) => typeof file === "string" && file.startsWith("/assets/"));
  event.waitUntil(keep(wanted));
});

async function keep(wanted) {
  const cache = await caches.open(CACHE);
  for (const request of await cache.keys()) {
    const path = new URL(request.url).pathname;
    if (path.startsWith("/assets/") && !wanted.includes(path)) await cache.delete(request);
  }
  for (const path of wanted) if (!(await cache.match(path))) await cache.add(path);
}

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || url.origin !== self.location.origin || url.pathname.startsWith("/v1/")) return;
  if (event.request.mode === "navigate") {
    event.respondWith(shell(event.request));
  } else if (url.pathname.startsWith("/assets/")) {
    event.respondWith(caches.match(event.request).then((kept) => kept || fetch(event.request)));
  }
});

async function shell(request) {
  try {
    const answer = await fetch(request);
    // A picture that is opened by itself is no page.
    const isPage = (answer.headers.get("content-type") ?? "").startsWith("text/html");
    if (answer.ok && isPage) (await caches.open(CACHE)).put("/", answer.clone());
    return answer;
  } catch (error) {
    const kept = await caches.match("/");
    if (kept) return kept;
    throw error;
  }
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(String(event.notification.data?.path ?? "")));
});

async function open(path) {
  const place = path.startsWith("#/m/") ? path : "";
  const [page] = await self.clients.matchAll({ type: "window" });
  if (!page) return self.clients.openWindow(`/${place}`);
  if (place) page.postMessage({ open: place });
  return page.focus();
}
