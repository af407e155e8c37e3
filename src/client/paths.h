/* The methods of the two services, as HTTP/2 paths (docs/protocol.md). */
#ifndef RV_CLIENT_PATHS_H
#define RV_CLIENT_PATHS_H

#define RV_PATH_CHECKPOINT "/deepmind.reverb.ReverbService/Checkpoint"
#define RV_PATH_MUTATE "/deepmind.reverb.ReverbService/MutatePriorities"
#define RV_PATH_RESET "/deepmind.reverb.ReverbService/Reset"
#define RV_PATH_SAMPLE "/deepmind.reverb.ReverbService/SampleStream"
#define RV_PATH_SERVER_INFO "/deepmind.reverb.ReverbService/ServerInfo"

#define RV_PATH_GET "/reverie.Reverie/Get"
#define RV_PATH_ITEMS "/reverie.Reverie/Items"
#define RV_PATH_SET_BOUNDS "/reverie.Reverie/SetBounds"
#define RV_PATH_SET_MEMORY_LIMIT "/reverie.Reverie/SetMemoryLimit"
#define RV_PATH_SET_RATE_LIMITER "/reverie.Reverie/SetRateLimiter"

#endif
