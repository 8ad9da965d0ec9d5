// Waiting for the library, which takes one change at a time.

const PAUSE = 1000; // milliseconds
const TRIES = 30;

/** The result of `work`, again and again while the library is being changed; `onWait` is told whether it waits. */
export async function patiently(work, onWait) {
  try {
    for (let tries = 1; ; tries += 1) {
      try {
        return await work();
      } catch (error) {
        if (error.code !== "library_busy" || tries === TRIES) throw error;
      }
      onWait(true);
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
  } finally {
    onWait(false);
  }
}
