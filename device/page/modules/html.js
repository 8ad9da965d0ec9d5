// Preact, its hooks and htm under one name.

import { h } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { Component, render } from "../vendor/preact.js";
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";

export const html = htm.bind(h);
