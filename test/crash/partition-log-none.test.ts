import { describeCrashes } from "./describe-crashes.ts";

describeCrashes("none", { distinctMin: 32_000 });
