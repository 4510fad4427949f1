"""Plainer pictures where a browser draws without a GPU: no smooth edges, no shadows, no light from an image of a place.

Those three cost most of the time there. Only a page knows what draws it, so this is a script that runs in every page,
before viser's own. It takes hold of viser's page by a name that is meant for that page's tests: where there is none any
more, the picture is right, and slow.
"""

PLAIN_DRAWING = """
(() => {
  const probe = document.createElement("canvas").getContext("webgl2");
  const info = probe?.getExtension("WEBGL_debug_renderer_info");
  const renderer = info ? String(probe.getParameter(info.UNMASKED_RENDERER_WEBGL)) : "";
  probe?.getExtension("WEBGL_lose_context")?.loseContext();
  // The names that viser's page warns of, and that of Windows.
  if (!/swiftshader|llvmpipe|softpipe|software|basic render/i.test(renderer)) return;

  const getContext = HTMLCanvasElement.prototype.getContext;
  HTMLCanvasElement.prototype.getContext = function (kind, settings) {
    const plain = String(kind).startsWith("webgl") ? { ...settings, antialias: false } : settings;
    return getContext.call(this, kind, plain);
  };

  const hold = (owner, name, value) => {
    Object.defineProperty(owner, name, { configurable: true, get: () => value, set: () => {} });
  };
  const brighten = (message) => {
    if (message.type === "AmbientLightMessage") message.props.intensity = 2.5;
  };
  const plain = ({ scene, messageQueue }) => {
    hold(scene.__r3f.root.getState().gl.shadowMap, "enabled", false);
    // The light that is dark elsewhere, instead of the image of a place: in what has come, and in what will.
    messageQueue.forEach(brighten);
    messageQueue.push = function (message) {
      brighten(message);
      return Array.prototype.push.call(this, message);
    };
    hold(scene, "environment", null);
  };
  let viewer;
  Object.defineProperty(window, "__viserMutable", {
    configurable: true,
    get: () => viewer,
    set: (given) => {
      viewer = given;
      try {
        plain(viewer);
      } catch (error) {
        console.warn("trot: slow pictures, because viser's page is not the one that trot knows.", error);
      }
    },
  });
})();
"""
