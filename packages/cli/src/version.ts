/** Version of the command and of the packages released with it. */
export const VERSION = "0.1.0";
