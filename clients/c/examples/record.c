/* Records 8 streams into a store and reads them back: what comes back is checked, and anything else ends with 1.
 *
 *   record [PATH [BYTES]]    a folder; with BYTES a file of that fixed size; without PATH in memory
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strongback_store.h"

#define STREAMS 8
#define FRAMES 5000
#define PERIOD_NS 1000000 /* a frame of each stream every millisecond */

static const int64_t START = INT64_C(1790000000000000000);

#define CHECK(what)                                                                              \
  do {                                                                                           \
    int code = (what);                                                                           \
    if (code != STRONGBACK_OK) {                                                                 \
      fprintf(stderr, "%s:%d: code %d: %s\n", __FILE__, __LINE__, code, strongback_last_error()); \
      exit(1);                                                                                   \
    }                                                                                            \
  } while (0)

#define EXPECT(what)                                                \
  do {                                                              \
    if (!(what)) {                                                  \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
      exit(1);                                                      \
    }                                                               \
  } while (0)

static double pressure(int stream, int n) { return 100.0 + stream + (n % 50) * 0.25; }
static const char *phase(int n) { return n < FRAMES / 2 ? "hold" : "ignition"; }

static strongback_store *open_store(int count, char **arguments) {
  strongback_options options = {0};
  strongback_store *store;
  options.path = count > 1 ? arguments[1] : NULL;
  options.size_bytes = count > 2 ? strtoull(arguments[2], NULL, 10) : count > 1 ? 0 : 16 << 20;
  if (count <= 2) {
    options.log_bytes = 1 << 20;
    options.max_bytes = 64 << 20;
  }
  /* Of a fixed size the log takes a sixteenth, and rows that wait for their block as much memory. */
  options.open_bytes = count > 2 ? options.size_bytes / 16 : 4 << 20;
  options.max_streams = STREAMS + 2;
  CHECK(strongback_open(&options, START, &store));
  return store;
}

static void record(strongback_store *store, const uint32_t *streams) {
  strongback_frames *frames;
  CHECK(strongback_frames_new(&frames));
  for (int n = 0; n < FRAMES; n++) {
    int64_t now = START + (int64_t)n * PERIOD_NS;
    for (int s = 0; s < STREAMS; s++) {
      CHECK(strongback_frame(frames, streams[s], now));
      CHECK(strongback_put_f64(frames, 0, pressure(s, n)));
      CHECK(strongback_put_i64(frames, 1, n));
      CHECK(strongback_put_text(frames, 2, phase(n), strlen(phase(n))));
      if (n % 100 == 7) CHECK(strongback_put_unknown(frames, 3));
      else CHECK(strongback_put_bool(frames, 3, n % 2));
    }
    if (n % 50 == 49) { /* every 50 ms */
      strongback_appended appended;
      bool more = true;
      CHECK(strongback_append(store, frames, now, &appended));
      EXPECT(appended.stored == 50 * STREAMS && appended.refused == 0);
      CHECK(strongback_commit(store, now));
      while (more) CHECK(strongback_maintain(store, now, &more));
    }
  }
  strongback_frames_free(frames);
}

static void read_back(strongback_store *store, int s) {
  char name[16];
  uint32_t stream;
  uint16_t channels[4];
  strongback_scan *scan;
  strongback_batch batch;
  static double numbers[1 << 16];
  int n = 0, code;
  snprintf(name, sizeof name, "engine%d", s);
  CHECK(strongback_find_stream(store, name, &stream));
  CHECK(strongback_find_channel(store, stream, "pressure", &channels[0]));
  CHECK(strongback_find_channel(store, stream, "count", &channels[1]));
  CHECK(strongback_find_channel(store, stream, "phase", &channels[2]));
  CHECK(strongback_find_channel(store, stream, "valve", &channels[3]));
  CHECK(strongback_scan_new(store, stream, INT64_MIN, INT64_MAX, channels, 4, &scan));
  while ((code = strongback_scan_next(scan, &batch)) == STRONGBACK_OK) {
    EXPECT(batch.columns == 4 && batch.rows <= sizeof numbers / sizeof *numbers);
    CHECK(strongback_scan_f64(scan, 0, numbers, batch.rows));
    for (size_t row = 0; row < batch.rows; row++, n++) {
      strongback_value value;
      EXPECT(batch.time[row] == START + (int64_t)n * PERIOD_NS && batch.row[row] == (uint64_t)n);
      EXPECT(numbers[row] == pressure(s, n));
      CHECK(strongback_scan_cell(scan, 1, row, &value));
      EXPECT(value.type == STRONGBACK_I32 && value.state == STRONGBACK_VALUE && value.as.i64 == n);
      CHECK(strongback_scan_cell(scan, 2, row, &value));
      EXPECT(value.type == STRONGBACK_STRING && value.as.text.length == strlen(phase(n)));
      EXPECT(memcmp(value.as.text.bytes, phase(n), value.as.text.length) == 0);
      CHECK(strongback_scan_cell(scan, 3, row, &value));
      EXPECT(n % 100 == 7 ? value.state == STRONGBACK_UNKNOWN
                          : value.state == STRONGBACK_VALUE && value.as.boolean == (n % 2 == 1));
    }
  }
  EXPECT(code == STRONGBACK_END && n == FRAMES);
  strongback_scan_free(scan);

  /* A value at an instant between two frames, a text, and the whole span from statistics. */
  strongback_value value;
  strongback_weight weight;
  int64_t since;
  char text[4];
  CHECK(strongback_value_at(store, stream, channels[1], START + 10 * PERIOD_NS + 1, &value, &since, NULL, 0));
  EXPECT(value.as.i64 == 10 && since == START + 10 * PERIOD_NS);
  CHECK(strongback_value_at(store, stream, channels[2], INT64_MAX - 1, &value, NULL, text, sizeof text));
  EXPECT(value.as.text.length == strlen("ignition") && memcmp(text, "igni", 4) == 0);
  CHECK(strongback_weigh(store, stream, channels[0], START, INT64_MAX, &weight));
  EXPECT(weight.count == FRAMES && weight.min == pressure(s, 0) && weight.max == pressure(s, 49));
  EXPECT(weight.min_time == START && weight.max_time == START + 49 * PERIOD_NS);
  EXPECT(fabs(weight.time_mean - pressure(s, 0) - 49 * 0.25 / 2) < 0.1 && weight.known_s > 4.9);
}

static void refuse_what_is_wrong(strongback_store *store) {
  uint32_t stream;
  size_t count;
  strongback_frames *frames;
  strongback_appended appended;
  EXPECT(strongback_find_stream(store, "nobody", &stream) == STRONGBACK_NOT_FOUND);
  EXPECT(strstr(strongback_last_error(), "nobody") != NULL);
  EXPECT(strongback_find_stream(store, NULL, &stream) == STRONGBACK_ARGUMENT);
  EXPECT(strongback_find_stream(store, "\xff\xfe", &stream) == STRONGBACK_ARGUMENT);
  EXPECT(strongback_commit(NULL, 0) == STRONGBACK_ARGUMENT);
  EXPECT(strongback_count_channels(store, 12345, &count) == STRONGBACK_NOT_FOUND);
  EXPECT(strongback_define_rdl(store, "CREATE STREAM", START) == STRONGBACK_OPTIONS);
  EXPECT(strstr(strongback_last_error(), "definition:1:") != NULL);
  CHECK(strongback_frames_new(&frames));
  EXPECT(strongback_put_i64(frames, 0, 1) == STRONGBACK_ARGUMENT);
  CHECK(strongback_frame(frames, 12345, START));
  EXPECT(strongback_append(store, frames, START, &appended) == STRONGBACK_REJECTED && appended.refused == 1);
  strongback_frames_free(frames);
  strongback_frames_free(NULL);
  strongback_scan_free(NULL);
}

int main(int count, char **arguments) {
  static const strongback_channel channels[] = {
      {"pressure", STRONGBACK_F64, STRONGBACK_EVERY_VALUE, 0, "kPa"},
      {"count", STRONGBACK_I32, STRONGBACK_EVERY_VALUE, 0, NULL},
      {"phase", STRONGBACK_STRING, STRONGBACK_EVERY_VALUE, 0, NULL},
      {"valve", STRONGBACK_BOOL, STRONGBACK_EVERY_VALUE, 0, NULL},
  };
  int64_t end = START + (int64_t)FRAMES * PERIOD_NS;
  uint32_t streams[STREAMS];
  size_t known;
  strongback_store *store = open_store(count, arguments);
  for (int s = 0; s < STREAMS; s++) {
    char name[16];
    snprintf(name, sizeof name, "engine%d", s);
    CHECK(strongback_define(store, name, channels, 4, START, &streams[s]));
  }
  CHECK(strongback_count_channels(store, streams[0], &known));
  EXPECT(known == 4);
  CHECK(strongback_define_rdl(store, "CREATE STREAM tank WITH ID 1 { level float WITH CODEC StepAlgorithm }", START));
  record(store, streams);
  refuse_what_is_wrong(store);
  for (int s = 0; s < STREAMS; s++) read_back(store, s);
  if (count > 1) {
    strongback_store *second;
    strongback_options same = {.path = arguments[1]};
    EXPECT(strongback_open(&same, end, &second) == STRONGBACK_IN_USE && second == NULL);
  }
  CHECK(strongback_close(store, end));
  if (count > 1) { /* It is there after the end. */
    store = open_store(count, arguments);
    for (int s = 0; s < STREAMS; s++) read_back(store, s);
    CHECK(strongback_close(store, end));
  }
  CHECK(strongback_close(NULL, 0));
  printf("%d streams, %d frames each: read back as recorded\n", STREAMS, FRAMES);
  return 0;
}
