import { defineConfig } from "vite";

// The hub serves what lies in this folder under a content policy without inline code: nothing may be inlined.
export default defineConfig({
  build: {
    outDir: "../lodger_hub/page",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
});
