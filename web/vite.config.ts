import { readFileSync } from "node:fs";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

// `npm run dev` serves the page with hot reload against a running server; set STRONGBACK_URL for another one.
const server = process.env.STRONGBACK_URL ?? "http://127.0.0.1:8080";

/** Puts the licences of what the page ships beside it. */
function licences(): Plugin {
  const shipped = {
    "uPlot": "uplot/LICENSE",
    "Svelte": "svelte/LICENSE.md",
    "Inter": "@fontsource-variable/inter/LICENSE",
    "JetBrains Mono": "@fontsource-variable/jetbrains-mono/LICENSE",
  };
  return {
    name: "licences",
    generateBundle() {
      const texts = Object.entries(shipped).map(
        ([name, path]) => `${name}\n\n${readFileSync(new URL(`node_modules/${path}`, import.meta.url), "utf8").trim()}\n`,
      );
      this.emitFile({ type: "asset", fileName: "assets/licences.txt", source: texts.join(`\n${"=".repeat(80)}\n\n`) });
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [svelte(), licences()],
  build: { target: "es2022", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  worker: { format: "es" },
  server: {
    host: "127.0.0.1",
    proxy: {
      // The server checks the origin of a WebSocket against its own address.
      "/api": { target: server, ws: true, changeOrigin: true, headers: { origin: server } },
    },
  },
});
