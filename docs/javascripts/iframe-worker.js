// A page that was opened from disk may start no worker: there, the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.global = frame.contentWindow;
      this.global.postMessage = (data) => send(this, data);
      const script = this.global.document.createElement("script");
      script.src = url;
      this.loaded = new Promise((resolve) => { script.onload = resolve; });
      this.global.document.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => send(this.global, data));
    }
  };

  function send(target, data) {
    setTimeout(() => target.dispatchEvent(new MessageEvent("message", { data })));
  }
}
