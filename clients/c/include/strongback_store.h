/* The embedded store of Strongback: streams of frames, durable, in a folder, in one file of a fixed size, or in memory.
 *
 * Every function returns STRONGBACK_OK or another code, unless it says otherwise; strongback_last_error() has the sentence
 * that belongs to the newest code of the calling thread. No call unwinds, aborts or exits: a fault of the library itself
 * comes back as STRONGBACK_INTERNAL.
 *
 * Threads: a strongback_store may be used from any number of threads at once. A strongback_frames and a strongback_scan
 * belong to one thread at a time. strongback_close() must be the last call with its store.
 *
 * Times are nanoseconds since 1970 UTC. The store never reads a clock: `now` is the caller's. Strings are UTF-8 and end
 * with a zero byte, unless a length stands beside them.
 */
#ifndef STRONGBACK_STORE_H
#define STRONGBACK_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Codes. */
enum {
  STRONGBACK_OK = 0,
  STRONGBACK_END = 1,          /* no error: nothing more to read */
  STRONGBACK_ARGUMENT = 2,     /* a null pointer, text that is not UTF-8, a number that cannot be meant */
  STRONGBACK_NOT_FOUND = 3,    /* no such stream, channel or value */
  STRONGBACK_IN_USE = 4,       /* another process has the store open */
  STRONGBACK_NEWER = 5,        /* written by a newer version */
  STRONGBACK_COPIED = 6,       /* a copy of another store: `strongback store adopt` */
  STRONGBACK_DAMAGED = 7,      /* what is on disk is not as it was written */
  STRONGBACK_OPTIONS = 8,      /* sizes or a definition that cannot be meant */
  STRONGBACK_IO = 9,           /* the disk refused */
  STRONGBACK_FULL = 10,        /* the log or the disk is full: commit and maintain, then try again */
  STRONGBACK_POISONED = 11,    /* a write or sync failed: close, and open again */
  STRONGBACK_CLOSED = 12,
  STRONGBACK_REJECTED = 13,    /* a frame or stream that cannot be stored */
  STRONGBACK_EXPIRED = 14,     /* written over while it was read: scan again */
  STRONGBACK_INTERNAL = 15     /* a fault of this library; please report it */
};

/* Types of channels. */
enum {
  STRONGBACK_BOOL = 1, STRONGBACK_I8 = 2, STRONGBACK_I16 = 3, STRONGBACK_I32 = 4, STRONGBACK_I64 = 5,
  STRONGBACK_U8 = 6, STRONGBACK_U16 = 7, STRONGBACK_U32 = 8, STRONGBACK_U64 = 9,
  STRONGBACK_F32 = 10, STRONGBACK_F64 = 11, STRONGBACK_STRING = 12
};

/* What a channel leaves out of what it is offered. `bound` is in the channel's unit. */
enum {
  STRONGBACK_EVERY_VALUE = 0,
  STRONGBACK_STEP = 1,         /* values equal to the one stored last */
  STRONGBACK_DEADBAND = 2,     /* values within `bound` of the one stored last */
  STRONGBACK_SWINGING_DOOR = 3 /* values within `bound` of the line between stored ones */
};

/* States of a cell. */
enum { STRONGBACK_VALUE = 0, STRONGBACK_ABSENT = 1, STRONGBACK_UNCHANGED = 2, STRONGBACK_UNKNOWN = 3 };

typedef struct strongback_store strongback_store;
typedef struct strongback_frames strongback_frames;
typedef struct strongback_scan strongback_scan;

/* Where and how; zero for a default, except `path`. */
typedef struct {
  const char *path;      /* folder, or file or block device of a fixed size; null: in memory, which needs size_bytes */
  uint64_t size_bytes;   /* all of it, for ever; 0: a folder, or what is there */
  uint32_t max_streams;  /* fixed sizes: most streams */
  uint32_t max_channels; /* fixed sizes: most channels of all streams together */
  uint64_t max_bytes;    /* folders: most bytes on disk; 0: 80 % of the file system */
  uint64_t log_bytes;    /* bytes of the commit log; 0: 64 MiB, a sixteenth of a fixed size */
  uint64_t open_bytes;   /* memory for rows that are not sealed yet; 0: 64 MiB */
} strongback_options;

typedef struct {
  const char *name;
  uint32_t type;      /* STRONGBACK_BOOL … STRONGBACK_STRING */
  uint32_t reduction; /* STRONGBACK_EVERY_VALUE … STRONGBACK_SWINGING_DOOR */
  double bound;
  const char *unit;   /* or null */
} strongback_channel;

/* A value; `type` says which member holds it. Types above STRONGBACK_STRING are blobs and arrays, which are not
 * given out yet: no member holds them. */
typedef struct {
  uint32_t type;
  uint32_t state; /* STRONGBACK_VALUE … STRONGBACK_UNKNOWN */
  union {
    bool boolean;
    int64_t i64;   /* I8 … I64 */
    uint64_t u64;  /* U8 … U64 */
    double f64;    /* F32 and F64 */
    struct {
      const char *bytes; /* not ended by a zero byte */
      size_t length;
    } text;
  } as;
} strongback_value;

/* What happened to the frames of one strongback_append. */
typedef struct {
  uint64_t stored;
  uint64_t reduced;   /* within their bounds: durable with the commit, without a row */
  uint64_t duplicate;
  uint64_t refused;   /* strongback_last_error() says why the first of them was */
} strongback_appended;

/* A batch of a scan: rows of one stream, column by column. Pointers hold until the next call with the scan. */
typedef struct {
  size_t rows;
  size_t columns;            /* as many as were asked for, in that order */
  const int64_t *time;       /* by row */
  const uint64_t *row;       /* by row: its number in the stream */
} strongback_batch;

/* A channel over a span of time. */
typedef struct {
  uint64_t count;      /* values stored in the span */
  double min, max;     /* NaN: none */
  int64_t min_time, max_time;
  double time_mean;    /* NaN: nowhere known */
  double known_s;      /* seconds for which it is known */
} strongback_weight;

/* The sentence of the newest error of this thread; never null. Holds until the next call of this thread. */
const char *strongback_last_error(void);

/* Opens a store, or makes one where there is none (a folder that is empty or missing; with size_bytes a file that is
 * missing; memory). */
int strongback_open(const strongback_options *options, int64_t now, strongback_store **store);

/* Ends it cleanly, with a commit, and frees it whatever is returned. In memory everything is gone. Null is nothing. */
int strongback_close(strongback_store *store, int64_t now);

/* Defines a stream with its channels, or finds it; `stream` gets its number, and `channels` keep their order as indices
 * from 0. Asking again with more channels adds them. */
int strongback_define(strongback_store *store, const char *name, const strongback_channel *channels, size_t count,
                      int64_t now, uint32_t *stream);

/* Defines every stream of a definition in RealDB's language. */
int strongback_define_rdl(strongback_store *store, const char *text, int64_t now);

/* The number of a stream, the index of its channel, and how many channels it has. */
int strongback_find_stream(const strongback_store *store, const char *name, uint32_t *stream);
int strongback_find_channel(const strongback_store *store, uint32_t stream, const char *name, uint16_t *channel);
int strongback_count_channels(const strongback_store *store, uint32_t stream, size_t *count);

/* Frames under way. Reused after strongback_append, which empties them. */
int strongback_frames_new(strongback_frames **frames);
void strongback_frames_free(strongback_frames *frames);

/* Begins a frame; the one before is ended with it. A channel that gets no value is absent in it. Numbers are converted
 * to the channel's type where that is exact; a frame with one that does not fit is refused. */
int strongback_frame(strongback_frames *frames, uint32_t stream, int64_t time);
int strongback_put_bool(strongback_frames *frames, uint16_t channel, bool value);
int strongback_put_i64(strongback_frames *frames, uint16_t channel, int64_t value);
int strongback_put_u64(strongback_frames *frames, uint16_t channel, uint64_t value);
int strongback_put_f32(strongback_frames *frames, uint16_t channel, float value);
int strongback_put_f64(strongback_frames *frames, uint16_t channel, double value);
int strongback_put_text(strongback_frames *frames, uint16_t channel, const char *bytes, size_t length);
int strongback_put_unknown(strongback_frames *frames, uint16_t channel);

/* Appends the frames and empties them: visible to readers at once, durable with the next commit. With refused frames it
 * returns STRONGBACK_FULL, STRONGBACK_REJECTED or STRONGBACK_POISONED; those before and after may be stored.
 * `appended` may be null. */
int strongback_append(strongback_store *store, strongback_frames *frames, int64_t now, strongback_appended *appended);

/* Makes everything appended so far durable. */
int strongback_commit(strongback_store *store, int64_t now);

/* Seals, checkpoints and expires for about a millisecond; `more` (or null) says whether more is waiting. Call it
 * regularly, from a thread of its own or between commits. */
int strongback_maintain(strongback_store *store, int64_t now, bool *more);

/* Scans a stream from `from` (inclusive) to `to` (exclusive), in the order of rows. The scan sees what was appended
 * before this call. */
int strongback_scan_new(const strongback_store *store, uint32_t stream, int64_t from, int64_t to,
                        const uint16_t *channels, size_t count, strongback_scan **scan);
/* The next rows; STRONGBACK_END after the last. */
int strongback_scan_next(strongback_scan *scan, strongback_batch *batch);
/* A cell of the newest batch. */
int strongback_scan_cell(const strongback_scan *scan, size_t column, size_t row, strongback_value *value);
/* Copies a column of the newest batch as numbers: NaN where there is none. `out` has room for the batch's rows. */
int strongback_scan_f64(const strongback_scan *scan, size_t column, double *out, size_t room);
void strongback_scan_free(strongback_scan *scan);

/* What a channel is at an instant, held or on the line to its next value; `since` (or null) is the time of the value
 * stored last. Text is copied to `text` as far as `room` bytes take it; its whole length is in `value`. */
int strongback_value_at(const strongback_store *store, uint32_t stream, uint16_t channel, int64_t time,
                        strongback_value *value, int64_t *since, char *text, size_t room);

/* Count, extremes and mean over a span, from the statistics of blocks where these say it. */
int strongback_weigh(const strongback_store *store, uint32_t stream, uint16_t channel, int64_t from, int64_t to,
                     strongback_weight *weight);

#ifdef __cplusplus
}
#endif

#endif
