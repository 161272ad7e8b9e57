import { describeCrashes } from "./describe-crashes.ts";

describeCrashes("none", { distinctMin: 50_000 });
