import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Browser, BrowserContextOptions, Locator, Page } from "playwright-core";
import { chromium } from "playwright-core";

/** Debian's. A machine without it fails these tests; `.ci/run` installs it. */
const CHROMIUM = "/usr/bin/chromium";
/** What is not there by then will not come. */
const WAIT_MS_MAX = 10_000;

/** A page in the browser, and everything that it did beside showing itself. */
export interface OpenPage {
  readonly page: Page;
  /** Messages on the console, errors nobody caught, and requests to anywhere but the page's own file. */
  readonly disturbances: readonly string[];
}

/** One browser with pages from files. */
export class PageOpener {
  readonly #browser: Browser;
  readonly #directory: string;
  #count = 0;
  #last: Page | undefined;

  private constructor(browser: Browser, directory: string) {
    this.#browser = browser;
    this.#directory = directory;
  }

  static async start(): Promise<PageOpener> {
    // Without the sandbox it runs as root too; the pages are our own.
    const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
    return new PageOpener(browser, await mkdtemp(join(tmpdir(), "tidemark-page-")));
  }

  async stop(): Promise<void> {
    await this.#browser.close();
    await rm(this.#directory, { recursive: true, force: true });
  }

  /** Opens HTML as a file of its own, in place of the page before. */
  async open(html: string, hash = "", options: BrowserContextOptions = {}): Promise<OpenPage> {
    this.#count += 1;
    const path = join(this.#directory, `${this.#count}.html`);
    await writeFile(path, html);
    const page = await this.#browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
    await this.#last?.close();
    this.#last = page;
    page.setDefaultTimeout(WAIT_MS_MAX);
    const disturbances: string[] = [];
    const address = pathToFileURL(path).href;
    page.on("console", (message) => disturbances.push(`console: ${message.text()}`));
    page.on("pageerror", (error) => disturbances.push(`error: ${error.message}`));
    page.on("dialog", (dialog) => {
      disturbances.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("request", (request) => {
      const url = request.url();
      if (url.split("#")[0] !== address && url !== "data:,") disturbances.push(`request: ${url}`);
    });
    await page.goto(`${address}${hash}`);
    return { page, disturbances };
  }
}

/** The step that a page shows. */
export async function stepOf(page: Page): Promise<number> {
  return Number(await page.locator("#caption").getAttribute("data-step"));
}

/** A broker's lane, as data. */
export async function laneOf(page: Page, brokerId: number) {
  const lane = page.locator(`.lane[data-broker="${brokerId}"]`);
  const get = async (name: string): Promise<string | null> => lane.getAttribute(`data-${name}`);
  return {
    role: await get("role"),
    process: await get("process"),
    epochs: await get("epochs"),
    values: await get("values"),
    hw: await get("hw"),
    leo: await get("leo"),
    bars: await attributesOf(lane.locator(".range"), ["data-epoch", "data-from", "data-to"]),
    wrong: await attributesOf(lane.locator(".wrong"), ["data-violation", "data-from", "data-to"]),
  };
}

/** Attributes of all that a locator finds, joined by spaces. */
async function attributesOf(locator: Locator, names: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const one of await locator.all()) {
    const values: (string | null)[] = [];
    for (const name of names) values.push(await one.getAttribute(name));
    found.push(values.join(" "));
  }
  return found;
}
