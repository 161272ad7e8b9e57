import { describeCrashes } from "./describe-crashes.ts";

describeCrashes("always", { distinctMin: 45_000 });
