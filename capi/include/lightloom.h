/* SPDX-License-Identifier: Apache-2.0
 *
 * liblightloom: a network for other simulators, packet by packet, with optical switches, transports and timed faults.
 *
 *     lightloom_network *network;
 *     if (lightloom_open("fabric.yaml", &network) != LIGHTLOOM_OK) { ... lightloom_last_error(...) ... }
 *     lightloom_receive(network, 1, 0, 1 << 20, 7, on_arrival, context);
 *     lightloom_send(network, 0, 1, 1 << 20, 7, on_sent, context);
 *     lightloom_run(network);
 *     lightloom_close(network);
 *
 * Time is a whole number of picoseconds from 0. Ranks are the hosts of the file, in order. Callbacks are called by
 * lightloom_run alone, at their instant, one at a time, and may call everything but lightloom_run, _finish and _close.
 * A network belongs to the thread that opened it. Every function returns one of the codes below unless it says otherwise.
 * docs/library.md says more.
 */
#ifndef LIGHTLOOM_H
#define LIGHTLOOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Goes up when a function or a code changes or goes; what is only added leaves it. */
#define LIGHTLOOM_ABI_VERSION 1

enum {
    LIGHTLOOM_OK = 0,
    LIGHTLOOM_BAD_ARGUMENT = 1, /* a null pointer, no such rank or network, no bytes */
    LIGHTLOOM_BAD_FILE = 2,     /* lightloom_last_error has every mistake with its line and column */
    LIGHTLOOM_BAD_STATE = 3,    /* called from a callback that may not, or after a failure */
    LIGHTLOOM_STALLED = 4,      /* messages that will never arrive, or receives that nothing was sent for */
    LIGHTLOOM_FAILED = 5,       /* the run cannot go on */
    LIGHTLOOM_PANICKED = 6      /* a mistake of the library, please report it; the network is of no use any more */
};

typedef struct lightloom_network lightloom_network;
typedef void (*lightloom_callback)(void *argument);

/* LIGHTLOOM_ABI_VERSION of the library, to compare with that of this header. */
uint32_t lightloom_abi_version(void);

/* What one unit of time is, in picoseconds: 1. */
uint64_t lightloom_time_resolution(void);

/* Copies what the last failure on this thread was, cut to size with a zero at the end. Returns its whole length. */
size_t lightloom_last_error(char *buffer, size_t size);

/* Opens a fabric file, or a scenario file of which `on`, `links`, `transport`, `switches`, `control`, `faults`, `seed` and
 * `traffic` are used. */
int lightloom_open(const char *path, lightloom_network **network);

/* The same from the text of a scenario file, which names other files relative to folder; NULL: where the program runs. */
int lightloom_open_text(const char *text, const char *folder, lightloom_network **network);

/* How many ranks there are. */
int lightloom_ranks(lightloom_network *network, uint32_t *ranks);

/* Simulated time. */
int lightloom_time(lightloom_network *network, uint64_t *picoseconds);

/* Calls back after so much time. */
int lightloom_schedule(lightloom_network *network, uint64_t picoseconds, lightloom_callback callback, void *argument);

/* Sends now; calls back when the last byte has arrived. The callback may be NULL. */
int lightloom_send(lightloom_network *network, uint32_t source, uint32_t destination, uint64_t bytes, uint64_t tag,
                   lightloom_callback callback, void *argument);

/* Calls back when so many bytes have come from source to destination under this tag, beyond those of receives before:
 * at once if they have come already. Messages of one source, destination and tag count in the order in which they were
 * sent. */
int lightloom_receive(lightloom_network *network, uint32_t destination, uint32_t source, uint64_t bytes, uint64_t tag,
                      lightloom_callback callback, void *argument);

/* Runs until no message and no timer of the caller is left. Receives for which nothing was sent stay: send and run again.
 * Faults, other traffic and the control plane of the file go on meanwhile, and stand still between runs. */
int lightloom_run(lightloom_network *network);

/* lightloom_run, and LIGHTLOOM_STALLED if a receive is left. */
int lightloom_finish(lightloom_network *network);

/* Packets put on a wire so far, each once for every link. */
int lightloom_packet_hops(lightloom_network *network, uint64_t *hops);

/* Frees the network. A second time is LIGHTLOOM_BAD_ARGUMENT. */
int lightloom_close(lightloom_network *network);

#ifdef __cplusplus
}
#endif
#endif
