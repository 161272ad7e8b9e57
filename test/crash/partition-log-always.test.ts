import { describeCrashes } from "./describe-crashes.ts";

describeCrashes("always", { distinctMin: 20_000 });
