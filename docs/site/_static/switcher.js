// The list of versions lies beside the pages, wherever the site is served: the theme takes an address.
(() => {
  const root = new URL(document.documentElement.dataset.content_root || "./", window.location.href);
  DOCUMENTATION_OPTIONS.theme_switcher_json_url = new URL("_static/switcher.json", root).href;
})();
