import { describeCrashes } from "./describe-crashes.ts";

describeCrashes("none", { distinctMin: 150_000 });
