/* A chart that is drawn anew when its content or its width changes, at most once a frame. */

export class Chart extends HTMLElement {
  content = null; // what `draw` shows
  #frame = 0;
  #observer = new ResizeObserver(() => this.redraw());

  connectedCallback() {
    this.#observer.observe(this);
  }

  disconnectedCallback() {
    this.#observer.disconnect();
  }

  /** Have `draw` called before the next frame. */
  redraw() {
    if (this.#frame || !this.content) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.draw();
    });
  }

  /** Draw the content at the present width. */
  draw() {}
}
