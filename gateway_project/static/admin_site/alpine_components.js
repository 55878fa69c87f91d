// Components of the operators' pages, for Alpine's build without eval: its parser reads neither globals, arrow
// functions nor several statements, so everything that attributes name is registered here.
document.addEventListener("alpine:init", () => {
  // The theme gives lists of rows, in forms that hide fields, an expression with jQuery; this passes the choice on.
  for (const list of document.querySelectorAll("select[x-init*='django.jQuery']")) {
    list.removeAttribute("x-init");
    django.jQuery(list).on("select2:select select2:clear", () => list.dispatchEvent(new Event("change")));
  }
  // Functions of the theme's app.js.
  Alpine.data("theme", theme);
  Alpine.data("searchForm", searchForm);
  Alpine.data("searchCommand", searchCommand);
  Alpine.data("searchDropdown", () => ({
    ...searchDropdown(),
    // The theme marks the chosen one of its own results; these are marked here, and new results begin without a mark.
    init() {
      this.$watch("currentIndex", (chosen) => this.mark(chosen));
      this.$el.addEventListener("htmx:afterSwap", () => { this.currentIndex = 0; });
    },
    mark(chosen) {
      document.querySelectorAll("#search-results a").forEach((one, place) => {
        const isChosen = place === chosen - 1;
        for (const name of ["bg-base-100", "dark:bg-base-700"]) one.classList.toggle(name, isChosen);
        if (isChosen) one.scrollIntoView({ block: "nearest" });
      });
    },
    show() {
      this.openSearchResults = true;
      this.currentIndex = 0;
    },
    leave() {
      const field = this.$refs.searchInput;
      this.openSearchResults = false;
      if (field.value === "") field.blur();
      else field.value = "";
    },
    // Opens the chosen result; without one, the form's page of results.
    enter(event) {
      if (this.currentIndex < 1) return;
      event.preventDefault();
      this.selectItem();
    },
    // The theme's own count and choose what its list of results no longer has.
    maxItem() {
      return document.querySelectorAll("#search-results a").length;
    },
    selectItem() {
      document.querySelectorAll("#search-results a")[this.currentIndex - 1]?.click();
    },
  }));
  // The body of every page: which tab is shown, and whether the navigation is.
  Alpine.data("adminPage", (firstTab) => ({
    activeTab: firstTab,
    sidebarMobileOpen: false,
    sidebarDesktopOpen: localStorage.getItem("sidebarDesktopOpen") !== "0",
    // Forms and sortable lists of the theme name these; what a page's data lacks, the parser does not find.
    window: { location: { pathname: location.pathname, search: location.search } },
    moveRecords,
    sortRecords,
    init() {
      this.activeTab = getCurrentTab() || firstTab;
      this.$watch("sidebarDesktopOpen", (open) => localStorage.setItem("sidebarDesktopOpen", open ? "1" : "0"));
    },
  }));
});
