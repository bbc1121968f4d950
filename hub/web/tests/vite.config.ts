import { readdirSync } from "node:fs";
import { defineConfig } from "vite";

const folder = import.meta.dirname;

// Bundled as for a server, so that Node's own runner takes TypeScript and JSX as the browser's build does.
export default defineConfig({
  root: folder,
  ssr: { noExternal: true },
  build: {
    ssr: true,
    outDir: "../node_modules/.tests",
    emptyOutDir: true,
    target: "node20",
    minify: false,
    rollupOptions: {
      input: readdirSync(folder).filter((name) => /\.test\.tsx?$/.test(name)).map((name) => `${folder}/${name}`),
    },
  },
});
