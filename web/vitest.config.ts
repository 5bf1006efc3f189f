import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// Unit tests beside the code: modules without components. Svelte compiles the classes whose files end in `.svelte.ts`.
// A test may wait for a busy machine.
export default defineConfig({
  plugins: [svelte()],
  test: { include: ["src/**/*.test.ts"], environment: "node", testTimeout: 60_000 },
});
