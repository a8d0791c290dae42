/* SPDX-License-Identifier: Apache-2.0
 *
 * liblightloom: a packet-level network for other simulators, with optical switches, transports and timed faults.
 *
 *     lightloom_network *network;
 *     if (lightloom_open("fabric.yaml", &network) != LIGHTLOOM_OK) { ... lightloom_last_error(...) ... }
 *     lightloom_receive(network, 1, 0, 1 << 20, 7, on_arrival, context);
 *     lightloom_send(network, 0, 1, 1 << 20, 7, on_sent, context);
 *     lightloom_run(network);
 *     lightloom_close(network);
 *
 * Times are in picoseconds from 0. Ranks are the file's hosts, in order. lightloom_run makes all callbacks, one at a
 * time at their simulated time; they must not call lightloom_run, lightloom_finish or lightloom_close. A network may be
 * used only by the thread that opened it. Functions return one of the codes below unless noted. See docs/library.md.
 */
#ifndef LIGHTLOOM_H
#define LIGHTLOOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented when a function or a code is changed or removed, but not for additions. */
#define LIGHTLOOM_ABI_VERSION 1

enum {
    LIGHTLOOM_OK = 0,
    LIGHTLOOM_BAD_ARGUMENT = 1, /* null pointer, unknown rank or network, or empty message */
    LIGHTLOOM_BAD_FILE = 2,     /* lightloom_last_error lists every mistake with line and column */
    LIGHTLOOM_BAD_STATE = 3,    /* called from a callback that must not, or after a failure */
    LIGHTLOOM_STALLED = 4,      /* a message will never arrive, or a receive has no message */
    LIGHTLOOM_FAILED = 5,       /* the run cannot continue */
    LIGHTLOOM_PANICKED = 6      /* library bug, please report it; the network is unusable */
};

typedef struct lightloom_network lightloom_network;
typedef void (*lightloom_callback)(void *argument);

/* Returns the library's LIGHTLOOM_ABI_VERSION, to compare with this header's. */
uint32_t lightloom_abi_version(void);

/* Returns the unit of time in picoseconds: 1. */
uint64_t lightloom_time_resolution(void);

/* Copies this thread's last error message, truncated to size and NUL-terminated. Returns its full length. */
size_t lightloom_last_error(char *buffer, size_t size);

/* Opens a fabric or scenario file. docs/library.md lists the supported keys of a scenario. */
int lightloom_open(const char *path, lightloom_network **network);

/* Opens the text of a scenario file. Paths in it are relative to folder; NULL is the working directory. */
int lightloom_open_text(const char *text, const char *folder, lightloom_network **network);

/* Returns the number of ranks. */
int lightloom_ranks(lightloom_network *network, uint32_t *ranks);

/* Returns the simulated time. */
int lightloom_time(lightloom_network *network, uint64_t *picoseconds);

/* Calls back after this time. */
int lightloom_schedule(lightloom_network *network, uint64_t picoseconds, lightloom_callback callback, void *argument);

/* Sends a message now, and calls back when its last byte has arrived. The callback may be NULL. */
int lightloom_send(lightloom_network *network, uint32_t source, uint32_t destination, uint64_t bytes, uint64_t tag,
                   lightloom_callback callback, void *argument);

/* Calls back when this many bytes with this tag have arrived from source, in addition to the bytes of earlier receives;
 * immediately if they have already arrived. Messages with the same source, destination and tag are received in the
 * order in which they were sent. */
int lightloom_receive(lightloom_network *network, uint32_t destination, uint32_t source, uint64_t bytes, uint64_t tag,
                      lightloom_callback callback, void *argument);

/* Runs until all messages and timers of the caller have completed. Receives without a message remain pending: send and
 * run again. The file's faults, other traffic and control plane advance only during a run. */
int lightloom_run(lightloom_network *network);

/* Like lightloom_run, but returns LIGHTLOOM_STALLED if a receive is pending at the end. */
int lightloom_finish(lightloom_network *network);

/* Returns the number of packets sent so far, counted once per link. */
int lightloom_packet_hops(lightloom_network *network, uint64_t *hops);

/* Frees the network. A second call returns LIGHTLOOM_BAD_ARGUMENT. */
int lightloom_close(lightloom_network *network);

#ifdef __cplusplus
}
#endif
#endif
