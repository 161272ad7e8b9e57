import { runRandomHistories } from "./random-histories.ts";

runRandomHistories(1, 2);
