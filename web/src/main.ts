// Starts the page.
import { mount } from "svelte";
import App from "./App.svelte";
import { setTheme } from "./theme";
import "uplot/dist/uPlot.min.css";
import "./fonts.css";
import "./tokens.css";
import "./base.css";

if (localStorage.getItem("strongback.theme") === "light") setTheme("light");

mount(App, { target: document.getElementById("page")! });
