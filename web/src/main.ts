// Starts the page.
import { mount } from "svelte";
import App from "./App.svelte";
import { desk } from "./desk.svelte";
import { live } from "./live.svelte";
import { setTheme } from "./theme";
import "uplot/dist/uPlot.min.css";
import "./fonts.css";
import "./tokens.css";
import "./base.css";

if (localStorage.getItem("strongback.theme") === "light") setTheme("light");

// What the first picture needs is on its way while the page is being built.
live.start();
desk.begin();
mount(App, { target: document.getElementById("page")! });
