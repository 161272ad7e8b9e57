/** @typedef {Readonly<Record<string, string | number | boolean | undefined>>} Attributes */

/**
 * An element with attributes and children. Text is always text: nothing of a history is ever parsed as HTML.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes] `undefined` and `false` leave one out, `true` makes it empty
 * @param {readonly (Node | string)[]} [children]
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, attributes = {}, children = []) {
  const made = document.createElement(tag);
  setAttributes(made, attributes);
  made.append(...children);
  return made;
}

/**
 * @param {Element} target
 * @param {Attributes} attributes
 */
export function setAttributes(target, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) target.removeAttribute(name);
    else target.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @returns {SVGElement}
 */
export function svgElement(tag, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(made, attributes);
  return made;
}

/**
 * The first `count` children of a container, which has as many afterwards: those that stay are reused, so that they can move.
 *
 * @param {Element} container
 * @param {number} count
 * @param {() => HTMLElement} make
 * @returns {HTMLElement[]}
 */
export function childrenOf(container, count, make) {
  while (container.children.length > count) container.lastElementChild?.remove();
  while (container.children.length < count) container.append(make());
  return /** @type {HTMLElement[]} */ ([...container.children]);
}

/**
 * @param {HTMLElement} target
 * @param {number} left from 0 to 1
 * @param {number} [width]
 */
export function place(target, left, width) {
  target.style.left = `${(left * 100).toFixed(3)}%`;
  if (width !== undefined) target.style.width = `${(width * 100).toFixed(3)}%`;
}

/** @param {number} timeUs */
export function formatTime(timeUs) {
  return `${(timeUs / 1e6).toFixed(timeUs < 100e6 ? 4 : 3)} s`;
}

/** @param {number} fromOffset @param {number} toOffset */
export function formatRange(fromOffset, toOffset) {
  if (toOffset === fromOffset + 1) return `offset ${fromOffset}`;
  return `offsets ${fromOffset} to ${toOffset - 1}`;
}
