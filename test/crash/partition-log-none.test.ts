import { describeCrashes } from "./describe-crashes.ts";

describeCrashes("none", { distinctMin: 45_000 });
