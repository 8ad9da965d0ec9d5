// Asking again and again, while somebody looks.

import { useEffect, useRef, useState } from "./html.js";
import { ask } from "./api.js";

/**
 * What `GET path` says: `{value, problem, code, refresh}`, asked for every `pause(value)` milliseconds while the page
 * is visible and `active`. Values stay when a later request fails.
 */
export function usePolling(path, pause, active = true) {
  const [state, setState] = useState({ value: null, problem: null, code: null });
  const refresh = useRef(() => {});
  useEffect(() => {
    if (!active) return undefined;
    let timer = null;
    let stopped = false;
    const controller = new AbortController();
    const look = async () => {
      clearTimeout(timer);
      let wait = pause(null);
      try {
        const value = await ask("GET", path, { signal: controller.signal });
        if (stopped) return;
        wait = pause(value);
        setState({ value, problem: null, code: null });
      } catch (error) {
        if (stopped) return;
        setState((known) => ({ ...known, problem: error.message, code: error.code ?? null }));
      }
      clearTimeout(timer);
      if (!document.hidden) timer = setTimeout(look, wait);
    };
    const onVisible = () => !document.hidden && look();
    document.addEventListener("visibilitychange", onVisible);
    refresh.current = look;
    look();
    return () => {
      stopped = true;
      clearTimeout(timer);
      controller.abort();
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, [path, active]);
  return { ...state, refresh: () => refresh.current() };
}
