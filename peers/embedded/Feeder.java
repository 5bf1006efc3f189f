// An embedded rival in a Java process: takes a course (crates/bench/src/embedded/course.rs says how it is written) until
// it ends or the time is over, says so in a line of JSON and waits to be killed; or opens what is there and reads it.
//
//   java -cp ... Feeder ENGINE load|read COURSE DIR COMMIT KEEP_S LIMIT_S [RECORDS]
//   ENGINE: h2, derby, duckdb, rocksdb, innodb, aria. COMMIT: second, frames:N.

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Random;

public final class Feeder {
  static final int LOOK_FRAMES = 64, LOOKUPS = 1000;

  /** A course; its frames are read one after the other. */
  static final class Course {
    static final int WINDOW = 1 << 30;
    final List<byte[]> kinds = new ArrayList<>();
    /** Of each stream its table, and of each table its streams. */
    final List<Integer> tableOf = new ArrayList<>();
    final List<List<Integer>> tables = new ArrayList<>();
    final long frames;
    private final FileChannel channel;
    private final long begin;
    private MappedByteBuffer window;
    private long windowAt;
    int stream;
    long time;
    final double[] cells = new double[4096];

    Course(Path path) throws IOException {
      channel = FileChannel.open(path, StandardOpenOption.READ);
      map(0);
      byte[] magic = new byte[4];
      window.get(magic);
      if (!new String(magic, StandardCharsets.US_ASCII).equals("SBWL")) throw new IOException(path + " is not a course");
      int streams = window.getInt();
      for (int s = 0; s < streams; s++) {
        window.position(window.position() + 2 + window.getShort(window.position()));
        int table = window.getInt();
        tableOf.add(table);
        while (tables.size() <= table) tables.add(new ArrayList<>());
        tables.get(table).add(s);
        byte[] kind = new byte[window.getShort()];
        window.get(kind);
        kinds.add(kind);
      }
      frames = window.getLong();
      begin = window.position();
    }

    private void map(long at) throws IOException {
      windowAt = at;
      window = channel.map(FileChannel.MapMode.READ_ONLY, at, Math.min(WINDOW, channel.size() - at));
      window.order(ByteOrder.LITTLE_ENDIAN);
    }

    void rewind() throws IOException {
      map(0);
      window.position((int) begin);
    }

    boolean next() throws IOException {
      if (window.remaining() < 1 << 16 && windowAt + window.limit() < channel.size()) map(windowAt + window.position());
      if (!window.hasRemaining()) return false;
      stream = window.getInt();
      time = window.getLong();
      for (int c = 0; c < kinds.get(stream).length; c++) cells[c] = window.getDouble();
      return true;
    }

    /** Whether a stream's table has others in it. */
    boolean isShared(int stream) {
      return tables.get(tableOf.get(stream)).size() > 1;
    }

    boolean isBool(int stream, int channel) {
      return kinds.get(stream)[channel] == 2;
    }
  }

  /** What was read back. */
  static final class Back {
    double open, aggregate, scan, range;
    long[] rows;
    double[] sums;
    long points, rangeRows, oldest, newest;
    double sum;
  }

  interface Find {
    boolean find(long time) throws Exception;
  }

  interface Engine {
    void open(Path dir) throws Exception;

    void create(Course course) throws Exception;

    void append(Course frame) throws Exception;

    void commit() throws Exception;

    void prune(long before) throws Exception;

    /** Newest time of the first stream. */
    long newest() throws Exception;

    long oldest() throws Exception;

    void aggregate(Course course, Back back) throws Exception;

    void scan(Course course, Back back) throws Exception;

    long range(Course course, long from, long to) throws Exception;

    boolean find(long time) throws Exception;

    default void close() throws Exception {}

    /** Bytes of the rows' own files, where the folder has others; 0: it has none. */
    default long dataBytes() throws Exception {
      return 0;
    }
  }

  /** Tables of a relational database: one a stream, its time as primary key; or one for many of the same shape, with the
   * number of the stream before the time. */
  static class Tables implements Engine {
    final String name;
    Connection connection;
    PreparedStatement[] inserts, deletes;
    PreparedStatement find;
    int[] waiting;
    /** DuckDB takes bulk by its own interface, into tables without an index: its zones are one. */
    org.duckdb.DuckDBAppender[] appenders;

    Tables(String name) {
      this.name = name;
    }

    @Override
    public void open(Path dir) throws Exception {
      String url = switch (name) {
        // WRITE_DELAY=0: a commit is written at once. It is synced by CHECKPOINT SYNC below.
        case "h2" -> "jdbc:h2:file:" + dir.resolve("course") + ";WRITE_DELAY=0;DB_CLOSE_ON_EXIT=FALSE";
        case "derby" -> "jdbc:derby:" + dir.resolve("course") + ";create=true";
        default -> "jdbc:duckdb:" + dir.resolve("course.duckdb");
      };
      System.setProperty("derby.stream.error.file", dir.resolve("derby.log").toString());
      connection = DriverManager.getConnection(url);
      connection.setAutoCommit(false);
    }

    @Override
    public void create(Course course) throws Exception {
      int tables = course.tables.size();
      inserts = new PreparedStatement[tables];
      deletes = new PreparedStatement[tables];
      waiting = new int[tables];
      for (int table = 0; table < tables; table++) {
        int s = course.tables.get(table).get(0);
        boolean shared = course.isShared(s);
        StringBuilder columns = new StringBuilder(shared ? "s INTEGER NOT NULL, t BIGINT NOT NULL" : "t BIGINT NOT NULL");
        if (!shared && !bulk()) columns.append(" PRIMARY KEY");
        StringBuilder marks = new StringBuilder(shared ? "?,?" : "?");
        for (int c = 0; c < course.kinds.get(s).length; c++) {
          columns.append(", c").append(c).append(course.isBool(s, c) ? " SMALLINT" : course.kinds.get(s)[c] == 3 ? " BIGINT" : course.kinds.get(s)[c] == 0 ? " REAL" : " DOUBLE PRECISION");
          marks.append(",?");
        }
        if (shared && !bulk()) columns.append(", PRIMARY KEY (s, t)");
        try (Statement make = connection.createStatement()) {
          make.execute("CREATE TABLE t" + table + " (" + columns + ")" + options());
        }
        connection.commit();
        inserts[table] = connection.prepareStatement("INSERT INTO t" + table + " VALUES (" + marks + ")");
        deletes[table] = connection.prepareStatement("DELETE FROM t" + table + " WHERE t < ?");
      }
      if (bulk()) {
        appenders = new org.duckdb.DuckDBAppender[tables];
        for (int table = 0; table < tables; table++) {
          appenders[table] = ((org.duckdb.DuckDBConnection) connection).createAppender("main", "t" + table);
        }
      }
    }

    /** What follows the definition of a table. */
    String options() {
      return "";
    }

    private boolean bulk() {
      return name.equals("duckdb");
    }

    @Override
    public void append(Course frame) throws Exception {
      if (bulk()) {
        org.duckdb.DuckDBAppender row = appenders[frame.tableOf.get(frame.stream)];
        row.beginRow();
        if (frame.isShared(frame.stream)) row.append(frame.stream);
        row.append(frame.time);
        byte[] kinds = frame.kinds.get(frame.stream);
        for (int c = 0; c < kinds.length; c++) {
          if (kinds[c] == 2) row.append((short) frame.cells[c]);
          else if (kinds[c] == 3) row.append((long) frame.cells[c]);
          else if (kinds[c] == 0) row.append((float) frame.cells[c]);
          else row.append(frame.cells[c]);
        }
        row.endRow();
        return;
      }
      int table = frame.tableOf.get(frame.stream), at = 1;
      PreparedStatement insert = inserts[table];
      if (frame.isShared(frame.stream)) insert.setInt(at++, frame.stream);
      insert.setLong(at++, frame.time);
      int channels = frame.kinds.get(frame.stream).length;
      for (int c = 0; c < channels; c++) {
        if (frame.isBool(frame.stream, c)) insert.setShort(at + c, (short) frame.cells[c]);
        else if (frame.kinds.get(frame.stream)[c] == 3) insert.setLong(at + c, (long) frame.cells[c]);
        else if (frame.kinds.get(frame.stream)[c] == 0) insert.setFloat(at + c, (float) frame.cells[c]);
        else insert.setDouble(at + c, frame.cells[c]);
      }
      insert.addBatch();
      if (++waiting[table] == 256) send(table);
    }

    private void send(int table) throws SQLException {
      inserts[table].executeBatch();
      waiting[table] = 0;
    }

    @Override
    public void commit() throws Exception {
      if (bulk()) for (org.duckdb.DuckDBAppender appender : appenders) appender.flush();
      for (int s = 0; s < inserts.length; s++) if (waiting[s] > 0) send(s);
      connection.commit();
      if (name.equals("h2")) {
        try (Statement sync = connection.createStatement()) {
          sync.execute("CHECKPOINT SYNC");
        }
      }
    }

    @Override
    public void prune(long before) throws Exception {
      for (PreparedStatement delete : deletes) {
        delete.setLong(1, before);
        delete.executeUpdate();
      }
    }

    private long one(String sql) throws SQLException {
      try (Statement select = connection.createStatement(); ResultSet rows = select.executeQuery(sql)) {
        rows.next();
        return rows.getLong(1);
      }
    }

    @Override
    public long newest() throws Exception {
      return one("SELECT max(t) FROM t0");
    }

    @Override
    public long oldest() throws Exception {
      return one("SELECT min(t) FROM t0");
    }

    @Override
    public void aggregate(Course course, Back back) throws Exception {
      for (int table = 0; table < course.tables.size(); table++) {
        int first = course.tables.get(table).get(0);
        boolean shared = course.isShared(first);
        String wide = this instanceof Maria ? "DOUBLE" : "DOUBLE PRECISION";
        // Derby does not make a double of what stands for a bool.
        String sum = name.equals("derby") && course.isBool(first, 0) ? "sum(c0)" : "sum(CAST(c0 AS " + wide + "))";
        String sql = "SELECT count(*), " + sum + ", min(c0), max(c0)" + (shared ? ", s" : "") + " FROM t" + table
            + (shared ? " GROUP BY s" : "");
        try (Statement select = connection.createStatement(); ResultSet rows = select.executeQuery(sql)) {
          while (rows.next()) {
            int s = shared ? rows.getInt(5) : first;
            back.rows[s] = rows.getLong(1);
            back.sums[s] = rows.getDouble(2);
          }
        }
      }
    }

    @Override
    public void scan(Course course, Back back) throws Exception {
      for (int table = 0; table < course.tables.size(); table++) {
        int first = course.tables.get(table).get(0), channels = course.kinds.get(first).length;
        int before = course.isShared(first) ? 2 : 1;
        try (Statement select = connection.createStatement()) {
          select.setFetchSize(10_000);
          String order = before == 2 ? " ORDER BY s, t" : " ORDER BY t";
          try (ResultSet rows = select.executeQuery("SELECT * FROM t" + table + order)) {
            while (rows.next()) {
              for (int c = 1; c <= channels; c++) back.sum += rows.getDouble(before + c);
              back.points += channels;
            }
          }
        }
      }
    }

    @Override
    public long range(Course course, long from, long to) throws Exception {
      long count = 0;
      try (PreparedStatement select = connection.prepareStatement("SELECT * FROM t0 WHERE t >= ? AND t < ? ORDER BY t")) {
        select.setLong(1, from);
        select.setLong(2, to);
        try (ResultSet rows = select.executeQuery()) {
          while (rows.next()) {
            rows.getDouble(2);
            count++;
          }
        }
      }
      return count;
    }

    @Override
    public boolean find(long time) throws Exception {
      if (find == null) find = connection.prepareStatement("SELECT c0 FROM t0 WHERE t = ?");
      find.setLong(1, time);
      try (ResultSet rows = find.executeQuery()) {
        return rows.next();
      }
    }
  }

  /** MariaDB in a server of its own that ends with this process; the processor time, bytes and memory of both count. */
  static final class Maria extends Tables {
    private Process server;
    private Path dir;

    Maria(String engine) {
      super(engine);
    }

    @Override
    public void open(Path dir) throws Exception {
      this.dir = dir;
      int port;
      try (java.net.ServerSocket free = new java.net.ServerSocket(0)) {
        port = free.getLocalPort();
      }
      String recipe = Path.of(System.getProperty("recipes"), "embedded", "mariadbd.sh").toString();
      server = new ProcessBuilder(recipe, "run", dir.toString(), Integer.toString(port)).start();
      others.add(server.pid());
      String url = "jdbc:mariadb://127.0.0.1:" + port + "/?user=root&useBulkStmts=true&useServerPrepStmts=true";
      while (true) {
        try {
          connection = DriverManager.getConnection(url);
          break;
        } catch (SQLException notYet) {
          if (!server.isAlive()) throw new IOException("mariadbd ended: " + last(dir.resolve("out.log")), notYet);
          Thread.sleep(5);
        }
      }
      try (Statement make = connection.createStatement()) {
        make.execute("CREATE DATABASE IF NOT EXISTS course");
        make.execute("USE course");
      }
      connection.setAutoCommit(false);
    }

    private static String last(Path log) throws IOException {
      List<String> lines = Files.readAllLines(log);
      return lines.isEmpty() ? "it said nothing" : lines.get(lines.size() - 1);
    }

    @Override
    String options() {
      // Aria has no transactions: each statement is one, synced at its end.
      return name.equals("aria") ? " ENGINE=Aria TRANSACTIONAL=1" : " ENGINE=InnoDB";
    }

    @Override
    public long dataBytes() throws IOException {
      try (java.util.stream.Stream<Path> files = Files.list(dir.resolve("course"))) {
        return files.mapToLong(file -> file.toFile().length()).sum();
      }
    }

    @Override
    public void close() throws Exception {
      connection.close();
      server.destroyForcibly().waitFor();
    }
  }

  /** RocksDB: key stream and time, value the cells in their own size; a write batch of WAL, synced at a commit. */
  static final class Rocks implements Engine {
    static {
      org.rocksdb.RocksDB.loadLibrary();
    }

    private org.rocksdb.RocksDB db;
    private final org.rocksdb.WriteBatch batch = new org.rocksdb.WriteBatch();
    private final org.rocksdb.WriteOptions synced = new org.rocksdb.WriteOptions().setSync(true);
    private final ByteBuffer key = ByteBuffer.allocate(12);
    private int streams;

    @Override
    public void open(Path dir) throws Exception {
      org.rocksdb.Options options = new org.rocksdb.Options().setCreateIfMissing(true)
          .setCompressionType(org.rocksdb.CompressionType.LZ4_COMPRESSION)
          .setBottommostCompressionType(org.rocksdb.CompressionType.ZSTD_COMPRESSION);
      db = org.rocksdb.RocksDB.open(options, dir.resolve("course").toString());
    }

    @Override
    public void create(Course course) {
      streams = course.kinds.size();
    }

    private byte[] key(int stream, long time) {
      key.clear();
      return Arrays.copyOf(key.putInt(stream).putLong(time).array(), 12);
    }

    @Override
    public void append(Course frame) throws Exception {
      byte[] kinds = frame.kinds.get(frame.stream);
      ByteBuffer value = ByteBuffer.allocate(8 * kinds.length);
      for (int c = 0; c < kinds.length; c++) {
        if (kinds[c] == 0) value.putFloat((float) frame.cells[c]);
        else if (kinds[c] == 1) value.putDouble(frame.cells[c]);
        else if (kinds[c] == 3) value.putLong((long) frame.cells[c]);
        else value.put((byte) frame.cells[c]);
      }
      batch.put(key(frame.stream, frame.time), Arrays.copyOf(value.array(), value.position()));
      if (batch.getDataSize() > 4 << 20) {
        try (org.rocksdb.WriteOptions unsynced = new org.rocksdb.WriteOptions()) {
          db.write(unsynced, batch);
        }
        batch.clear();
      }
    }

    @Override
    public void commit() throws Exception {
      db.write(synced, batch);
      batch.clear();
    }

    @Override
    public void prune(long before) throws Exception {
      for (int s = 0; s < streams; s++) db.deleteRange(key(s, 0), key(s, before));
    }

    @Override
    public long newest() {
      try (org.rocksdb.RocksIterator at = db.newIterator()) {
        at.seekForPrev(key(0, Long.MAX_VALUE));
        return ByteBuffer.wrap(at.key()).getLong(4);
      }
    }

    @Override
    public long oldest() {
      try (org.rocksdb.RocksIterator at = db.newIterator()) {
        at.seek(key(0, 0));
        return ByteBuffer.wrap(at.key()).getLong(4);
      }
    }

    private static double cell(byte[] kinds, int c, ByteBuffer value) {
      return kinds[c] == 0 ? value.getFloat() : kinds[c] == 1 ? value.getDouble() : kinds[c] == 3 ? value.getLong() : value.get();
    }

    @Override
    public void aggregate(Course course, Back back) {
      try (org.rocksdb.RocksIterator at = db.newIterator()) {
        for (at.seekToFirst(); at.isValid(); at.next()) {
          int stream = ByteBuffer.wrap(at.key()).getInt();
          back.rows[stream]++;
          back.sums[stream] += cell(course.kinds.get(stream), 0, ByteBuffer.wrap(at.value()));
        }
      }
    }

    @Override
    public void scan(Course course, Back back) {
      try (org.rocksdb.RocksIterator at = db.newIterator()) {
        for (at.seekToFirst(); at.isValid(); at.next()) {
          byte[] kinds = course.kinds.get(ByteBuffer.wrap(at.key()).getInt());
          ByteBuffer value = ByteBuffer.wrap(at.value());
          for (int c = 0; c < kinds.length; c++) back.sum += cell(kinds, c, value);
          back.points += kinds.length;
        }
      }
    }

    @Override
    public long range(Course course, long from, long to) {
      long count = 0;
      try (org.rocksdb.RocksIterator at = db.newIterator()) {
        byte[] end = key(0, to);
        for (at.seek(key(0, from)); at.isValid() && Arrays.compareUnsigned(at.key(), end) < 0; at.next()) {
          cell(course.kinds.get(0), 0, ByteBuffer.wrap(at.value()));
          count++;
        }
      }
      return count;
    }

    @Override
    public boolean find(long time) throws Exception {
      return db.get(key(0, time)) != null;
    }
  }

  /** Processes besides this one that do the engine's work. */
  static final List<Long> others = new ArrayList<>();

  private static long sum(String file, String key) throws IOException {
    long sum = 0;
    List<String> processes = new ArrayList<>(List.of("self"));
    for (long other : others) processes.add(Long.toString(other));
    for (String process : processes) {
      for (String line : Files.readAllLines(Path.of("/proc", process, file))) {
        if (line.startsWith(key)) sum += Long.parseLong(line.replaceAll("[^0-9]", ""));
      }
    }
    return sum;
  }

  static long writtenBytes() throws IOException {
    return sum("io", "write_bytes: ");
  }

  static double cpuSeconds() throws IOException {
    double seconds = ((com.sun.management.OperatingSystemMXBean)
        java.lang.management.ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    for (long other : others) {
      String stat = Files.readString(Path.of("/proc", Long.toString(other), "stat"));
      String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
      // The 14th and 15th field, in hundredths of a second.
      seconds += (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / 100.0;
    }
    return seconds;
  }

  static double rssMib() throws IOException {
    return sum("status", "VmHWM:") / 1024.0;
  }

  static double seconds(long since) {
    return (System.nanoTime() - since) / 1e9;
  }

  static void load(Engine engine, Course course, Path dir, long every, long keepNs, double limit, long most) throws Exception {
    engine.open(dir);
    engine.create(course);
    long begin = System.nanoTime(), committed = begin, frames = 0, points = 0, commits = 0, uncommitted = 0;
    double cpu = cpuSeconds();
    long written = writtenBytes(), newest = 0;
    course.rewind();
    while (frames < most && course.next()) {
      engine.append(course);
      newest = course.time;
      frames++;
      points += course.kinds.get(course.stream).length;
      uncommitted++;
      boolean looks = frames % LOOK_FRAMES == 0;
      if (every > 0 ? uncommitted == every : looks && seconds(committed) >= 1) {
        engine.commit();
        if (keepNs > 0) engine.prune(newest - keepNs);
        commits++;
        uncommitted = 0;
        committed = System.nanoTime();
      }
      if (looks && seconds(begin) > limit) break;
    }
    engine.commit();
    if (keepNs > 0) {
      engine.prune(newest - keepNs);
      engine.commit();
    }
    commits++;
    System.out.printf(Locale.ROOT,
        "{\"frames\":%d,\"points\":%d,\"seconds\":%.6f,\"cpu_s\":%.6f,\"commits\":%d,\"written_bytes\":%d,\"rss_mib\":%.1f}%n",
        frames, points, seconds(begin), cpuSeconds() - cpu, commits, writtenBytes() - written, rssMib());
    System.out.flush();
    while (System.in.read() >= 0) {}
    System.exit(1);
  }

  static void read(Engine engine, Course course, Path dir) throws Exception {
    Back back = new Back();
    back.rows = new long[course.kinds.size()];
    back.sums = new double[course.kinds.size()];
    long begin = System.nanoTime();
    engine.open(dir);
    back.newest = engine.newest();
    back.open = seconds(begin);
    begin = System.nanoTime();
    engine.aggregate(course, back);
    back.aggregate = seconds(begin);
    begin = System.nanoTime();
    engine.scan(course, back);
    back.scan = seconds(begin);
    back.oldest = engine.oldest();
    long at = back.oldest + (back.newest - back.oldest) / 2, half = (back.newest - back.oldest) / 200;
    begin = System.nanoTime();
    back.rangeRows = engine.range(course, at - half, at + half);
    back.range = seconds(begin);
    List<Long> times = new ArrayList<>();
    course.rewind();
    while (course.next()) {
      if (course.stream == 0 && course.time >= back.oldest && course.time <= back.newest) times.add(course.time);
    }
    int every = Math.max(1, times.size() / LOOKUPS);
    List<Long> chosen = new ArrayList<>();
    for (int i = 0; i < times.size() && chosen.size() < LOOKUPS; i += every) chosen.add(times.get(i));
    Collections.shuffle(chosen, new Random(1));
    double[] took = new double[chosen.size()];
    long found = 0;
    for (int i = 0; i < took.length; i++) {
      long start = System.nanoTime();
      if (engine.find(chosen.get(i))) found++;
      took[i] = (System.nanoTime() - start) / 1e3;
    }
    Arrays.sort(took);
    System.out.printf(Locale.ROOT,
        "{\"open_s\":%.6f,\"rows\":%s,\"sums\":%s,\"aggregate_s\":%.6f,\"scanned_points\":%d,\"scanned_sum\":%s,"
            + "\"scan_s\":%.6f,\"range_rows\":%d,\"range_s\":%.6f,\"lookup_us\":%.3f,\"looked_up\":%d,\"found\":%d%s}%n",
        back.open, Arrays.toString(back.rows), Arrays.toString(back.sums), back.aggregate, back.points,
        Double.toString(back.sum), back.scan, back.rangeRows, back.range, took.length == 0 ? 0 : took[took.length / 2],
        took.length, found, engine.dataBytes() == 0 ? "" : ",\"blocks\":[" + engine.dataBytes() + "," + back.points + "]");
    engine.close();
  }

  public static void main(String[] args) throws Exception {
    Engine engine = switch (args[0]) {
      case "rocksdb" -> new Rocks();
      case "innodb", "aria" -> new Maria(args[0]);
      default -> new Tables(args[0]);
    };
    Course course = new Course(Path.of(args[2]));
    Path dir = Path.of(args[3]);
    if (args[1].equals("load")) {
      long every = args[4].equals("second") ? 0 : Long.parseLong(args[4].substring("frames:".length()));
      load(engine, course, dir, every, Long.parseLong(args[5]) * 1_000_000_000L, Double.parseDouble(args[6]),
          args.length > 7 ? Long.parseLong(args[7]) : Long.MAX_VALUE);
    } else {
      read(engine, course, dir);
    }
    System.exit(0);
  }
}
