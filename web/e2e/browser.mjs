// The browser of the end-to-end tests: the system's Chromium, quiet, with no word to the internet.
export const chromiumPath = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const chromiumFlags = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];
