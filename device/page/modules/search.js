// A search of the library, with the passages that it finds.

import { html, useRef, useState } from "./html.js";
import { ask } from "./api.js";
import { Marked } from "./marked.js";
import { count, line, seen } from "./text.js";

const HITS = 8;

export function Search() {
  const [query, setQuery] = useState("");
  const [hits, setHits] = useState(null);
  const [problem, setProblem] = useState(null);
  const running = useRef(null);
  const search = async (event) => {
    event.preventDefault();
    running.current?.abort();
    const controller = (running.current = new AbortController());
    setProblem(null);
    try {
      const path = `library/search?query=${encodeURIComponent(query.trim())}&count=${HITS}`;
      setHits((await ask("GET", path, { signal: controller.signal })).hits);
    } catch (error) {
      if (!controller.signal.aborted) setProblem(error.message);
    }
  };
  return html`
    <section aria-labelledby="search-title">
      <h2 id="search-title">Search</h2>
      <form class="inline" role="search" onSubmit=${search}>
        <label for="query">Text to look for</label>
        <input id="query" type="search" value=${query} onInput=${(event) => setQuery(event.currentTarget.value)} />
        <button type="submit" disabled=${!query.trim()}>Search</button>
      </form>
      ${problem && html`<p class="problem" role="alert">${seen(problem)}</p>`}
      <div role="status">${hits && html`<p class="unseen">${count(hits.length, "passage")} found</p>`}</div>
      ${hits?.length === 0 && html`<p>No passage was found.</p>`}
      <ol class="hits">
        ${(hits ?? []).map(
          (hit) =>
            html`<li key=${hit.chunk}>
              <h3><bdi>${line(hit.title)}</bdi></h3>
              <p class="place">
                <bdi>${line([hit.path, hit.place].filter(Boolean).join(", "))}</bdi>
              </p>
              <blockquote><${Marked} text=${hit.text} path=${hit.path} /></blockquote>
            </li>`,
        )}
      </ol>
    </section>
  `;
}
