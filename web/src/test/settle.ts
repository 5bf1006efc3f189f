/** Waits until everything that is only waiting for its turn has run. */
export const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));
