"""Arrow keys that steer the robot, where viser's page would turn its camera by them."""

ARROW_KEYS = """
(() => {
  const arrow = (event) => event.isTrusted && event.key.startsWith("Arrow");
  const slider = (event) => event.target.closest?.("[role=slider]");
  const field = (event) => event.target.closest?.("input, textarea, select");
  // The camera knows keys by their place on the keyboard, and steering by their name: it gets a press without a place.
  window.addEventListener("keydown", (event) => {
    if (!arrow(event) || slider(event) || field(event) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.stopImmediatePropagation();
    event.preventDefault();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: event.key, bubbles: true }));
  }, true);
  // A slider that was reached by keys is moved by them, and nothing else is; one that was dragged lets go of them.
  window.addEventListener("DOMContentLoaded", () => document.body.addEventListener("keydown", (event) => {
    if (arrow(event) && slider(event)) event.stopPropagation();
  }));
  window.addEventListener("pointerup", () => setTimeout(() => {
    if (document.activeElement?.getAttribute("role") === "slider") document.activeElement.blur();
  }));
})();
"""
