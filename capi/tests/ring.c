/* SPDX-License-Identifier: Apache-2.0
 * A ring all-reduce over liblightloom: each rank forwards a piece when it has arrived.
 *   ring FILE BYTES      prints the number of ranks and the time in picoseconds
 */
#include <lightloom.h>
#include <stdio.h>
#include <stdlib.h>

/* The compiler checks the type of each function. */
static uint32_t (*const version)(void) = lightloom_abi_version;
static uint64_t (*const resolution)(void) = lightloom_time_resolution;
static size_t (*const last_error)(char *, size_t) = lightloom_last_error;
static int (*const open_file)(const char *, lightloom_network **) = lightloom_open;
static int (*const open_text)(const char *, const char *, lightloom_network **) = lightloom_open_text;
static int (*const count)(lightloom_network *, uint32_t *) = lightloom_ranks;
static int (*const now)(lightloom_network *, uint64_t *) = lightloom_time;
static int (*const schedule)(lightloom_network *, uint64_t, lightloom_callback, void *) = lightloom_schedule;
static int (*const hops)(lightloom_network *, uint64_t *) = lightloom_packet_hops;
static int (*const run)(lightloom_network *) = lightloom_run;
static int (*const finish)(lightloom_network *) = lightloom_finish;
static int (*const end)(lightloom_network *) = lightloom_close;

static lightloom_network *network;
static uint32_t ranks, done;
static uint64_t piece;

struct rank {
    uint32_t number, steps_left;
};

static void check(int code, const char *what) {
    if (code != LIGHTLOOM_OK) {
        char words[4096];
        last_error(words, sizeof words);
        fprintf(stderr, "%s: %d: %s\n", what, code, words);
        exit(1);
    }
}

static void step(void *argument);

static void pass_on(struct rank *rank) {
    uint32_t next = (rank->number + 1) % ranks, before = (rank->number + ranks - 1) % ranks;
    check(lightloom_send(network, rank->number, next, piece, 7, NULL, NULL), "send");
    check(lightloom_receive(network, rank->number, before, piece, 7, step, rank), "receive");
}

static void step(void *argument) {
    struct rank *rank = argument;
    if (--rank->steps_left > 0)
        pass_on(rank);
    else
        done += 1;
}

static void begin(void *argument) {
    pass_on(argument);
}

int main(int count_of_words, char **words) {
    uint64_t time, packets;
    if (count_of_words != 3 || version() != LIGHTLOOM_ABI_VERSION || resolution() != 1)
        return 2;
    if (open_text("name: none\non: {ring: {hots: 2}}\n", NULL, &network) != LIGHTLOOM_BAD_FILE)
        return 3;
    check(open_file(words[1], &network), "open");
    check(count(network, &ranks), "ranks");
    piece = strtoull(words[2], NULL, 10) / ranks;
    struct rank *all = calloc(ranks, sizeof *all);
    for (uint32_t number = 0; number < ranks; number++) {
        all[number] = (struct rank){number, 2 * (ranks - 1)};
        check(schedule(network, 0, begin, &all[number]), "schedule");
    }
    check(run(network), "run");
    check(finish(network), "finish");
    check(now(network, &time), "time");
    check(hops(network, &packets), "hops");
    printf("%u %llu %llu\n", ranks, (unsigned long long)time, (unsigned long long)packets);
    check(end(network), "close");
    free(all);
    return done == ranks && end(network) == LIGHTLOOM_BAD_ARGUMENT ? 0 : 4;
}
