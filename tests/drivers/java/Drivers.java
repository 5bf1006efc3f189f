import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.InputStreamReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.sql.Array;
import java.sql.Connection;
import java.sql.Date;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.postgresql.PGConnection;
import org.postgresql.util.PGInterval;

/**
 * Asks a server the questions of standard input with a driver of Java, and prints the answers as JSON.
 *
 * <p>{@code java Drivers pgjdbc|flight < questions.json > answers.json}
 */
public final class Drivers {
    private static JsonObject questions;
    private static boolean isFlight;

    /** Finds the answer about a feature. */
    private interface Asked {
        Object ask(Connection connection) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        var input = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        questions = JsonParser.parseReader(input).getAsJsonObject();
        isFlight = arguments[0].equals("flight");
        Map<String, Asked> features = new LinkedHashMap<>();
        features.put("connect", c -> rows(c, question("connect")));
        features.put("columns", c -> each(c, questions.getAsJsonArray("columns")));
        features.put("values", c -> rows(c, question("values")));
        features.put("special", c -> rows(c, question("special")));
        features.put("arrays", c -> rows(c, question("arrays")));
        features.put("elements", c -> rows(c, question("elements")));
        features.put("parameters", c -> each(c, questions.getAsJsonArray("parameters")));
        features.put("any", c -> each(c, questions.getAsJsonArray("any")));
        features.put("limit", c -> rows(c, question("limit")));
        features.put("prepared", Drivers::prepared);
        features.put("parts", Drivers::parts);
        features.put("errors", Drivers::errors);
        features.put("cancel", Drivers::cancel);
        features.put("metadata", isFlight ? Drivers::flightMetadata : Drivers::metadata);
        if (!isFlight) {
            features.put("modes", c -> modes());
            features.put("given", c -> Map.of("text", each(c, questions.getAsJsonArray("given")),
                    "binary", given()));
            features.put("copy", Drivers::copy);
            features.put("transactions", Drivers::transactions);
            features.put("reset", Drivers::reset);
            features.put("grows", Drivers::grows);
        }
        Map<String, Object> answers = new TreeMap<>();
        for (var feature : features.entrySet()) {
            Map<String, Object> answer = new TreeMap<>();
            try (Connection connection = connect(new Properties())) {
                answer.put("value", feature.getValue().ask(connection));
            } catch (Exception | LinkageError error) {
                answer.clear();
                answer.put("error", messages(error));
            }
            answers.put(feature.getKey(), answer);
        }
        var gson = new GsonBuilder().serializeNulls().serializeSpecialFloatingPointValues().create();
        System.out.println(gson.toJson(answers));
    }

    private static String messages(Throwable error) {
        var text = new StringBuilder(error.toString());
        for (var cause = error.getCause(); cause != null; cause = cause.getCause()) {
            text.append(": ").append(cause);
        }
        return text.toString();
    }

    private static Connection connect(Properties more) throws SQLException {
        String host = questions.get("host").getAsString();
        Properties properties = new Properties();
        properties.putAll(more);
        properties.setProperty("user", "anyone");
        if (isFlight) {
            properties.setProperty("password", "none");
            properties.setProperty("useEncryption", "false");
            return DriverManager.getConnection(
                    "jdbc:arrow-flight-sql://" + host + ":" + questions.get("flight_port").getAsInt(), properties);
        }
        return DriverManager.getConnection(
                "jdbc:postgresql://" + host + ":" + questions.get("port").getAsInt() + "/strongback", properties);
    }

    private static JsonObject question(String name) {
        return questions.getAsJsonObject(name);
    }

    private static String marks(String sql) {
        // JDBC leaves the statement to the server, which knows parameters as $1.
        return isFlight ? sql : sql.replaceAll("\\$\\d+", "?");
    }

    private static PreparedStatement bound(Connection connection, JsonObject question) throws SQLException {
        PreparedStatement statement = connection.prepareStatement(marks(question.get("sql").getAsString()));
        JsonArray arguments = question.getAsJsonArray("arguments");
        for (int at = 0; at < arguments.size(); at++) {
            JsonObject argument = arguments.get(at).getAsJsonObject();
            bind(connection, statement, at + 1, argument.get("kind").getAsString(), argument.get("value"));
        }
        return statement;
    }

    private static void bind(Connection connection, PreparedStatement statement, int at, String kind, JsonElement value)
            throws SQLException {
        switch (kind) {
            case "int" -> statement.setObject(at, value.getAsLong());
            case "int4" -> statement.setInt(at, value.getAsInt());
            case "float" -> statement.setObject(at, value.getAsDouble());
            case "bool" -> statement.setBoolean(at, value.getAsBoolean());
            case "decimal" -> statement.setBigDecimal(at, new BigDecimal(value.getAsString()));
            case "date" -> statement.setDate(at, Date.valueOf(value.getAsString()));
            case "interval" -> statement.setObject(at, new PGInterval(0, 0, 0, 0, 0, value.getAsDouble() / 1e6));
            case "null" -> statement.setNull(at, Types.VARCHAR);
            case "time" -> {
                if (isFlight) {
                    // It sends the milliseconds of a Timestamp as microseconds.
                    statement.setLong(at, value.getAsLong());
                } else {
                    statement.setObject(at, time(value));
                }
            }
            case "texts", "ints", "floats", "times" -> statement.setArray(at, array(connection, kind, value));
            default -> statement.setString(at, value.getAsString());
        }
    }

    private static OffsetDateTime time(JsonElement us) {
        return Instant.EPOCH.plus(us.getAsLong(), ChronoUnit.MICROS).atOffset(ZoneOffset.UTC);
    }

    private static Array array(Connection connection, String kind, JsonElement value) throws SQLException {
        List<Object> elements = new ArrayList<>();
        for (JsonElement element : value.getAsJsonArray()) {
            elements.add(switch (kind) {
                case "ints" -> element.getAsLong();
                case "floats" -> element.getAsDouble();
                case "times" -> isFlight ? element.getAsLong() : time(element);
                default -> element.getAsString();
            });
        }
        String type = switch (kind) {
            case "ints" -> isFlight ? "BIGINT" : "int8";
            case "floats" -> isFlight ? "DOUBLE" : "float8";
            case "times" -> isFlight ? "BIGINT" : "timestamptz";
            default -> isFlight ? "VARCHAR" : "text";
        };
        return connection.createArrayOf(type, elements.toArray());
    }

    private static Object rows(Connection connection, JsonObject question) throws SQLException {
        try (PreparedStatement statement = bound(connection, question);
                ResultSet result = statement.executeQuery()) {
            return rows(result);
        }
    }

    private static Object rows(ResultSet result) throws SQLException {
        ResultSetMetaData columns = result.getMetaData();
        List<String> types = new ArrayList<>();
        for (int at = 1; at <= columns.getColumnCount(); at++) {
            types.add(columns.getColumnTypeName(at));
        }
        List<Object> rows = new ArrayList<>();
        while (result.next()) {
            List<Object> row = new ArrayList<>();
            for (int at = 1; at <= types.size(); at++) {
                row.add(cell(result, columns, at));
            }
            rows.add(row);
        }
        return Map.of("types", types, "rows", rows);
    }

    private static Object cell(ResultSet result, ResultSetMetaData columns, int at) throws SQLException {
        String type = columns.getColumnTypeName(at);
        if (type.equals("timestamptz") || type.equals("TIMESTAMP_WITH_TIMEZONE")) {
            return plain(result.getObject(at, OffsetDateTime.class));
        }
        return plain(result.getObject(at));
    }

    /** Returns a value as JSON can hold it: times as microseconds since 1970. */
    private static Object plain(Object value) throws SQLException {
        if (value instanceof OffsetDateTime time) {
            return ChronoUnit.MICROS.between(Instant.EPOCH, time.toInstant());
        }
        if (value instanceof Timestamp time) {
            return ChronoUnit.MICROS.between(Instant.EPOCH, time.toInstant());
        }
        if (value instanceof BigDecimal number) {
            return number.toPlainString();
        }
        if (value instanceof Array array) {
            return plain(array.getArray());
        }
        if (value instanceof Object[] elements) {
            List<Object> all = new ArrayList<>();
            for (Object element : elements) {
                all.add(plain(element));
            }
            return all;
        }
        if (value instanceof Number || value instanceof Boolean || value == null) {
            return value;
        }
        return value.toString();
    }

    private static Object each(Connection connection, JsonArray asked) throws SQLException {
        List<Object> answers = new ArrayList<>();
        for (JsonElement question : asked) {
            try {
                answers.add(rows(connection, question.getAsJsonObject()));
            } catch (SQLException error) {
                throw new SQLException(question.getAsJsonObject().get("sql").getAsString(), error);
            }
        }
        return answers;
    }

    /** Reads the same while the table gains a column. Returns the number of columns each time. */
    private static Object grows(Connection connection) throws Exception {
        List<Integer> found = new ArrayList<>();
        HttpClient http = HttpClient.newHttpClient();
        String sql = "select * from grows_pgjdbc where time_ns > ?";
        PreparedStatement statement = null;
        for (int run = 0; run < 12; run++) {
            if (run == 0 || run == 8) {
                String line = "grows_pgjdbc " + (run == 0 ? "a" : "b") + "=" + run + " " + (run + 1);
                http.send(HttpRequest.newBuilder(URI.create(questions.get("write_url").getAsString()))
                        .POST(BodyPublishers.ofString(line)).build(), BodyHandlers.discarding());
            }
            if (statement == null) {
                statement = connection.prepareStatement(sql);
            }
            statement.setLong(1, 0);
            try (ResultSet result = statement.executeQuery()) {
                result.next();
                found.add(result.getMetaData().getColumnCount());
            }
        }
        return found;
    }

    /** Asks with columns in binary from the first time on. */
    private static Object given() throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("prepareThreshold", "-1");
        try (Connection connection = connect(properties)) {
            return each(connection, questions.getAsJsonArray("given"));
        }
    }

    /** Asks the same in each way that the driver has to run a statement. */
    private static Object modes() throws SQLException {
        JsonArray all = new JsonArray();
        all.add(question("limit"));
        all.addAll(questions.getAsJsonArray("parameters"));
        all.addAll(questions.getAsJsonArray("any"));
        Map<String, Object> answers = new TreeMap<>();
        for (String mode : List.of("prepareThreshold=1", "prepareThreshold=-1", "preferQueryMode=extendedForPrepared",
                "preferQueryMode=extendedCacheEverything", "preferQueryMode=simple")) {
            Properties properties = new Properties();
            properties.setProperty(mode.split("=")[0], mode.split("=")[1]);
            try (Connection connection = connect(properties)) {
                answers.put(mode, each(connection, all));
            } catch (SQLException error) {
                throw new SQLException(mode, error);
            }
        }
        return answers;
    }

    private static Object prepared(Connection connection) throws SQLException {
        List<Object> rows = new ArrayList<>();
        JsonObject asked = question("prepared");
        try (PreparedStatement statement = connection.prepareStatement(marks(asked.get("sql").getAsString()))) {
            for (JsonElement value : asked.getAsJsonArray("values")) {
                statement.setLong(1, value.getAsLong());
                try (ResultSet result = statement.executeQuery()) {
                    while (result.next()) {
                        rows.add(List.of(result.getLong(1), result.getDouble(2)));
                    }
                }
            }
            if (isFlight) {
                return Map.of("rows", rows);
            }
            String type = statement.getParameterMetaData().getParameterTypeName(1);
            return Map.of("rows", rows, "parameters", type, "columns", statement.getMetaData().getColumnCount());
        }
    }

    private static Map<String, Object> sum(ResultSet result) throws SQLException {
        long count = 0;
        long total = 0;
        long first = 0;
        long last = 0;
        double sum = 0;
        while (result.next()) {
            last = result.getLong(1);
            first = count == 0 ? last : first;
            count++;
            total += last;
            sum += result.getDouble(2);
        }
        return Map.of("rows", count, "total", total, "first", first, "last", last, "sum", sum);
    }

    private static Object parts(Connection connection) throws SQLException {
        JsonObject asked = question("parts");
        List<Object> sums = new ArrayList<>();
        if (!isFlight) {
            connection.setAutoCommit(false);
        }
        for (int size : List.of(asked.get("rows").getAsInt(), 0)) {
            try (Statement statement = connection.createStatement()) {
                statement.setFetchSize(size);
                try (ResultSet result = statement.executeQuery(asked.get("sql").getAsString())) {
                    sums.add(sum(result));
                }
            }
        }
        if (!isFlight) {
            connection.commit();
        }
        return sums;
    }

    private static String state(SQLException error) {
        if (error.getSQLState() != null && !isFlight) {
            return error.getSQLState();
        }
        String text = messages(error);
        int at = text.indexOf("SQLSTATE ");
        return at < 0 ? text : text.substring(at + 9, at + 14);
    }

    private static String stateOf(Connection connection, String sql) {
        try (Statement statement = connection.createStatement()) {
            if (statement.execute(sql)) {
                try (ResultSet result = statement.getResultSet()) {
                    while (result.next()) {
                        result.getObject(1);
                    }
                }
            }
            return "no error";
        } catch (SQLException error) {
            return state(error);
        }
    }

    private static Object errors(Connection connection) {
        List<String> states = new ArrayList<>();
        for (JsonElement sql : questions.getAsJsonArray("errors")) {
            states.add(stateOf(connection, sql.getAsString()));
        }
        try (PreparedStatement statement = bound(connection, question("refused"))) {
            statement.execute();
            states.add("no error");
        } catch (SQLException error) {
            states.add(state(error));
        }
        return states;
    }

    /** Cancels a statement from another thread, and goes on with the connection. */
    private static Object cancel(Connection connection) throws Exception {
        String state;
        try (Statement statement = connection.createStatement()) {
            CompletableFuture<String> ended = CompletableFuture.supplyAsync(() -> {
                String sql = questions.get(isFlight ? "endless" : "endless_count").getAsString();
                try (ResultSet result = statement.executeQuery(sql)) {
                    while (result.next()) {
                        if (isFlight) {
                            statement.cancel();
                        }
                    }
                    return "no error";
                } catch (SQLException error) {
                    return isFlight && messages(error).toLowerCase().contains("cancel") ? "canceled" : state(error);
                }
            });
            while (!isFlight && !ended.isDone()) {
                statement.cancel();
            }
            state = ended.get();
        }
        // A request that was on its way meets the next statement.
        while (stateOf(connection, "select 1").equals("57014")) {
            Thread.onSpinWait();
        }
        try (Statement statement = connection.createStatement();
                ResultSet result = statement.executeQuery("select 1")) {
            result.next();
            return List.of(state, List.of(List.of(result.getInt(1))));
        }
    }

    private static Object copy(Connection connection) throws Exception {
        var text = new StringWriter();
        String sql = questions.get("copy").getAsString();
        long rows = connection.unwrap(PGConnection.class).getCopyAPI().copyOut(sql, text);
        return List.of(text.toString(), rows);
    }

    private static Object transactions(Connection connection) throws SQLException {
        List<Object> states = new ArrayList<>();
        String failing = questions.getAsJsonArray("errors").get(0).getAsString();
        for (int isolation : List.of(Connection.TRANSACTION_READ_COMMITTED, Connection.TRANSACTION_SERIALIZABLE)) {
            connection.setReadOnly(true);
            connection.setTransactionIsolation(isolation);
            connection.setAutoCommit(false);
            states.add(stateOf(connection, "select 1"));
            connection.commit();
            connection.setAutoCommit(true);
        }
        connection.setAutoCommit(false);
        states.add(stateOf(connection, "select 1"));
        Savepoint savepoint = connection.setSavepoint("before");
        states.add(stateOf(connection, failing));
        states.add(stateOf(connection, "select 1"));
        connection.rollback(savepoint);
        states.add(stateOf(connection, "select 1"));
        states.add(stateOf(connection, failing));
        connection.rollback();
        states.add(stateOf(connection, "select 1"));
        connection.commit();
        connection.setAutoCommit(true);
        return states;
    }

    /** What a pool does with a connection that comes back. */
    private static Object reset(Connection connection) throws SQLException {
        List<Object> seen = new ArrayList<>();
        connection.setClientInfo("ApplicationName", "mine");
        seen.add(connection.getClientInfo("ApplicationName"));
        connection.setNetworkTimeout(Runnable::run, 10_000);
        seen.add(connection.isValid(5));
        connection.clearWarnings();
        seen.add(stateOf(connection, "discard all"));
        try (Statement statement = connection.createStatement();
                ResultSet result = statement.executeQuery("show application_name")) {
            result.next();
            seen.add(result.getString(1));
        }
        return seen;
    }

    /** Calls for metadata. */
    private interface Call {
        Object get() throws SQLException;
    }

    private static void put(Map<String, Object> found, String name, Call call) {
        try {
            found.put(name, call.get());
        } catch (SQLException | RuntimeException error) {
            found.put(name, messages(error));
        }
    }

    private static void put(Map<String, Object> found, String name, Call call, String... columns) {
        put(found, name, () -> {
            List<Object> rows = new ArrayList<>();
            try (ResultSet result = (ResultSet) call.get()) {
                while (result.next()) {
                    List<Object> row = new ArrayList<>();
                    for (String column : columns) {
                        row.add(plain(result.getObject(column)));
                    }
                    rows.add(row);
                }
            }
            return rows;
        });
    }

    private static Object metadata(Connection connection) throws SQLException {
        DatabaseMetaData data = connection.getMetaData();
        Map<String, Object> found = new TreeMap<>();
        put(found, "product", () -> data.getDatabaseProductName());
        put(found, "tables", () -> data.getTables(null, "public", "%", new String[] {"TABLE"}),
                "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE");
        put(found, "any_tables", () -> data.getTables(null, null, "engine", null), "TABLE_NAME");
        put(found, "columns", () -> data.getColumns(null, "public", "kinds", "%"),
                "COLUMN_NAME", "TYPE_NAME", "DATA_TYPE", "COLUMN_SIZE", "DECIMAL_DIGITS", "NULLABLE");
        put(found, "array_columns", () -> data.getColumns(null, "public", "lab", "%"), "COLUMN_NAME", "TYPE_NAME");
        put(found, "types", data::getTypeInfo, "TYPE_NAME");
        put(found, "schemas", () -> data.getSchemas(), "TABLE_SCHEM");
        put(found, "catalogs", () -> data.getCatalogs(), "TABLE_CAT");
        put(found, "table_types", () -> data.getTableTypes(), "TABLE_TYPE");
        put(found, "primary_keys", () -> data.getPrimaryKeys(null, "public", "engine"), "COLUMN_NAME");
        put(found, "imported_keys", () -> data.getImportedKeys(null, "public", "engine"), "FKCOLUMN_NAME");
        put(found, "exported_keys", () -> data.getExportedKeys(null, "public", "engine"), "FKCOLUMN_NAME");
        put(found, "indexes", () -> data.getIndexInfo(null, "public", "engine", false, false), "INDEX_NAME");
        put(found, "versions", () -> data.getVersionColumns(null, "public", "engine"), "COLUMN_NAME");
        put(found, "identifiers", () -> data.getBestRowIdentifier(null, "public", "engine", 0, true), "COLUMN_NAME");
        put(found, "privileges", () -> data.getTablePrivileges(null, "public", "engine"), "PRIVILEGE");
        put(found, "column_privileges", () -> data.getColumnPrivileges(null, "public", "engine", "p"), "PRIVILEGE");
        put(found, "functions", () -> data.getFunctions(null, "public", "%"), "FUNCTION_NAME");
        put(found, "procedures", () -> data.getProcedures(null, "public", "%"), "PROCEDURE_NAME");
        put(found, "user_types", () -> data.getUDTs(null, "public", "%", null), "TYPE_NAME");
        put(found, "name_length", () -> data.getMaxColumnNameLength());
        put(found, "read_only", () -> data.isReadOnly());
        put(found, "keywords", () -> data.getSQLKeywords().length() > 0);
        try (Statement statement = connection.createStatement();
                ResultSet result = statement.executeQuery("select time, p, big from engine limit 1")) {
            ResultSetMetaData columns = result.getMetaData();
            List<Object> described = new ArrayList<>();
            for (int at = 1; at <= columns.getColumnCount(); at++) {
                described.add(List.of(columns.getColumnLabel(at), columns.getColumnClassName(at),
                        columns.getTableName(at), columns.getPrecision(at), columns.isAutoIncrement(at)));
            }
            found.put("result", described);
        }
        return found;
    }

    private static Object flightMetadata(Connection connection) throws SQLException {
        DatabaseMetaData data = connection.getMetaData();
        Map<String, Object> found = new TreeMap<>();
        put(found, "product", () -> data.getDatabaseProductName());
        put(found, "tables", () -> data.getTables(null, "public", "%", new String[] {"TABLE"}),
                "TABLE_NAME", "TABLE_TYPE");
        put(found, "columns", () -> data.getColumns(null, "public", "kinds", "%"),
                "COLUMN_NAME", "TYPE_NAME", "NULLABLE");
        put(found, "schemas", () -> data.getSchemas(), "TABLE_SCHEM");
        put(found, "catalogs", () -> data.getCatalogs(), "TABLE_CAT");
        put(found, "table_types", () -> data.getTableTypes(), "TABLE_TYPE");
        put(found, "primary_keys", () -> data.getPrimaryKeys(null, "public", "engine"), "COLUMN_NAME");
        put(found, "imported_keys", () -> data.getImportedKeys(null, "public", "engine"), "FKCOLUMN_NAME");
        put(found, "read_only", () -> data.isReadOnly());
        put(found, "keywords", () -> data.getSQLKeywords());
        put(found, "functions", () -> data.getNumericFunctions());
        return found;
    }
}
