import { describeCrashes } from "./describe-crashes.ts";

describeCrashes("always", { distinctMin: 75_000 });
