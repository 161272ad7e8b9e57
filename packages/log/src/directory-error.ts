/** What is wrong with a log directory or with a topic in it, as opposed to one partition's log. Part of `LogErrorType`. */
export type LogDirectoryErrorType =
  | {
      readonly code: "INCONSISTENT_CLUSTER_ID";
      readonly path: string;
      readonly found: string;
      readonly expected: string;
    }
  | { readonly code: "INCONSISTENT_NODE_ID"; readonly path: string; readonly found: number; readonly expected: number }
  | { readonly code: "INCONSISTENT_TOPIC_ID"; readonly path: string; readonly found: string; readonly expected: string }
  | { readonly code: "INVALID_PARTITIONS"; readonly partitions: number; readonly reason: string }
  | { readonly code: "INVALID_TOPIC_EXCEPTION"; readonly topic: string; readonly reason: string }
  | { readonly code: "LOG_DIRECTORY_LOCKED"; readonly directory: string }
  | { readonly code: "LOG_DIRECTORY_LOCK_UNSUPPORTED"; readonly directory: string }
  | { readonly code: "META_PROPERTIES_INVALID"; readonly path: string; readonly reason: string }
  | { readonly code: "PARTITION_METADATA_INVALID"; readonly path: string; readonly reason: string }
  | { readonly code: "TOPIC_ALREADY_EXISTS"; readonly topic: string }
  | { readonly code: "UNKNOWN_DIRECTORY"; readonly path: string; readonly reason: string }
  | { readonly code: "UNKNOWN_TOPIC_OR_PARTITION"; readonly topic: string; readonly partition: number | undefined };
