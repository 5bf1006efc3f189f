// Starts the page.
import { mount } from "svelte";
import App from "./shell/App.svelte";
import { desk } from "./layout/desk.svelte";
import { live } from "./state/live.svelte";
import { setTheme } from "./plot/theme";
import "uplot/dist/uPlot.min.css";
import "./style/fonts.css";
import "./style/tokens.css";
import "./style/base.css";

if (localStorage.getItem("strongback.theme") === "light") setTheme("light");

// What the first picture needs is on its way while the page is being built.
live.start();
desk.begin();
mount(App, { target: document.getElementById("page")! });
