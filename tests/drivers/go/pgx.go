package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// withPgx asks with pgx, by its own interface: the extended protocol, binary, statements prepared once and kept.
func withPgx(q Questions) []Asked {
	ctx := context.Background()
	address := fmt.Sprintf("postgres://anyone@%s:%d/strongback?sslmode=disable", q.Host, q.Port)
	conn, failed := pgx.Connect(ctx, address)
	if failed != nil {
		return unconnected(failed)
	}
	ask := func(question Question) (Rows, error) { return pgxRows(ctx, conn, question) }
	return append(common(q, ask, pgxState), []Asked{
		{"modes", func() (any, error) { return pgxModes(ctx, q, address) }},
		{"prepared", func() (any, error) { return pgxPrepared(ctx, q, conn) }},
		{"parts", func() (any, error) { return pgxParts(ctx, q, conn) }},
		{"copy", func() (any, error) {
			var out bytes.Buffer
			tag, err := conn.PgConn().CopyTo(ctx, &out, q.Copy)
			return []any{out.String(), tag.RowsAffected()}, err
		}},
		{"cancel", func() (any, error) { return pgxCancel(ctx, q, address) }},
		{"transactions", func() (any, error) { return pgxTransactions(ctx, q, conn) }},
		{"reset", func() (any, error) { return pgxReset(ctx, address) }},
		{"metadata", func() (any, error) { return pgxMetadata(ctx, conn) }},
		{"grows", func() (any, error) { return pgxGrows(ctx, q, conn) }},
	}...)
}

type querier interface {
	Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error)
}

func pgxRows(ctx context.Context, conn querier, question Question, more ...any) (Rows, error) {
	result := Rows{Rows: [][]any{}}
	rows, err := conn.Query(ctx, question.SQL, append(more, question.natives()...)...)
	if err != nil {
		return result, err
	}
	defer rows.Close()
	types := pgtype.NewMap()
	for _, column := range rows.FieldDescriptions() {
		name := fmt.Sprint(column.DataTypeOID)
		if known, ok := types.TypeForOID(column.DataTypeOID); ok {
			name = known.Name
		}
		result.Types = append(result.Types, name)
	}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return result, err
		}
		for at, value := range values {
			values[at] = pgxPlain(value)
		}
		result.Rows = append(result.Rows, values)
	}
	return result, rows.Err()
}

func pgxPlain(value any) any {
	switch v := value.(type) {
	case pgtype.Numeric:
		text, _ := v.Value()
		return text
	case []any:
		elements := make([]any, len(v))
		for at, element := range v {
			elements[at] = pgxPlain(element)
		}
		return elements
	}
	return plain(value)
}

// pgxModes asks the same in each way that pgx has to run a statement.
func pgxModes(ctx context.Context, q Questions, address string) (any, error) {
	answers := map[string][]Rows{}
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		config, err := pgx.ParseConfig(address)
		if err != nil {
			return nil, err
		}
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", mode, err)
		}
		ask := func(question Question) (Rows, error) { return pgxRows(ctx, conn, question) }
		rows, err := each(append(append([]Question{q.Limit}, q.Parameters...), q.Any...), ask)
		conn.Close(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", mode, err)
		}
		answers[mode.String()] = rows
	}
	return answers, nil
}

func pgxPrepared(ctx context.Context, q Questions, conn *pgx.Conn) (any, error) {
	described, err := conn.Prepare(ctx, "again", q.Prepared.SQL)
	if err != nil {
		return nil, err
	}
	found := [][]any{}
	batch := &pgx.Batch{}
	for _, value := range q.Prepared.Values {
		rows, err := pgxRows(ctx, conn, Question{SQL: "again"}, value)
		if err != nil {
			return nil, err
		}
		found = append(found, rows.Rows[0])
		batch.Queue("again", value)
	}
	// The same in one batch, pipelined.
	results := conn.SendBatch(ctx, batch)
	batched := 0
	for range q.Prepared.Values {
		rows, err := results.Query()
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			batched++
		}
	}
	if err := results.Close(); err != nil {
		return nil, err
	}
	answer := map[string]any{"rows": found, "parameters": described.ParamOIDs, "batched": batched}
	return answer, conn.Deallocate(ctx, "again")
}

// pgxParts reads a result twice: as the rows arrive, and by a cursor.
func pgxParts(ctx context.Context, q Questions, conn *pgx.Conn) (any, error) {
	var streamed, fetched Sum
	rows, err := conn.Query(ctx, q.Parts.SQL)
	if err != nil {
		return nil, err
	}
	var n int64
	var p float64
	if _, err := pgx.ForEachRow(rows, []any{&n, &p}, func() error { streamed.add(n, p); return nil }); err != nil {
		return nil, err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "declare parts cursor for "+q.Parts.SQL); err != nil {
		return nil, err
	}
	for before := -1; before != fetched.Rows; {
		before = fetched.Rows
		rows, err := tx.Query(ctx, fmt.Sprintf("fetch forward %d from parts", q.Parts.Rows))
		if err != nil {
			return nil, err
		}
		if _, err := pgx.ForEachRow(rows, []any{&n, &p}, func() error { fetched.add(n, p); return nil }); err != nil {
			return nil, err
		}
	}
	return []Sum{streamed, fetched}, tx.Commit(ctx)
}

// pgxGrows reads the same while the table gains a column, and returns the number of columns each time. After the error
// that tells of it, pgx prepares the statement again for the next run.
func pgxGrows(ctx context.Context, q Questions, conn *pgx.Conn) (any, error) {
	found := []int{}
	for run := 0; run < 12; run++ {
		if run == 0 || run == 8 {
			line := fmt.Sprintf("grows_pgx %c=%d %d", "ab"[run/8], run, run+1)
			answer, err := http.Post(q.WriteURL, "text/plain", strings.NewReader(line))
			if err != nil {
				return nil, err
			}
			answer.Body.Close()
		}
		question := Question{SQL: "select * from grows_pgx where time_ns > $1"}
		rows, err := pgxRows(ctx, conn, question, int64(0))
		if run == 8 && pgxState(err) == "0A000" {
			rows, err = pgxRows(ctx, conn, question, int64(0))
		}
		if err != nil {
			return nil, err
		}
		found = append(found, len(rows.Types))
	}
	return found, nil
}

func pgxState(err error) string {
	var own *pgconn.PgError
	if errors.As(err, &own) {
		return own.Code
	}
	return fmt.Sprint(err)
}

// pgxCancel cancels by the context of a statement, in a connection that is used on.
func pgxCancel(ctx context.Context, q Questions, address string) (any, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Minute}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := conn.Query(watched, q.Endless)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		cancel()
	}
	state := pgxState(rows.Err())
	after, err := pgxRows(ctx, conn, Question{SQL: "select 1"})
	return []any{state, after.Rows}, err
}

func pgxTransactions(ctx context.Context, q Questions, conn *pgx.Conn) (any, error) {
	states := []string{}
	options := []pgx.TxOptions{
		{}, {IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly, DeferrableMode: pgx.Deferrable},
		{IsoLevel: pgx.RepeatableRead},
	}
	for _, option := range options {
		tx, err := conn.BeginTx(ctx, option)
		if err != nil {
			return nil, err
		}
		status := string(conn.PgConn().TxStatus())
		if _, err := tx.Exec(ctx, "select 1"); err != nil {
			return nil, err
		}
		if err := tx.Commit(ctx); err != nil {
			return nil, err
		}
		states = append(states, status+string(conn.PgConn().TxStatus()))
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	inner, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	_, err = inner.Exec(ctx, q.Errors[0])
	states = append(states, pgxState(err), string(conn.PgConn().TxStatus()))
	_, err = inner.Exec(ctx, "select 1")
	states = append(states, pgxState(err))
	if err := inner.Rollback(ctx); err != nil {
		return nil, err
	}
	states = append(states, string(conn.PgConn().TxStatus()))
	if err := tx.Rollback(ctx); err != nil {
		return nil, err
	}
	return append(states, string(conn.PgConn().TxStatus())), nil
}

// pgxReset gives a connection back to a pool that resets it, and takes it again.
func pgxReset(ctx context.Context, address string) (any, error) {
	config, err := pgxpool.ParseConfig(address + "&pool_max_conns=1")
	if err != nil {
		return nil, err
	}
	config.AfterRelease = func(conn *pgx.Conn) bool {
		_, err := conn.Exec(ctx, "discard all")
		return err == nil && conn.DeallocateAll(ctx) == nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	var seen []any
	for _, sql := range []string{"set application_name = 'mine'", "select 1"} {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, err
		}
		rows, err := pgxRows(ctx, conn.Conn(), Question{SQL: "show application_name"})
		if err != nil {
			return nil, err
		}
		seen = append(seen, rows.Rows[0][0], conn.Conn().PgConn().PID())
		conn.Release()
		if err := pool.Ping(ctx); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// pgxMetadata loads types from the catalog, by the statement that pgx has for it.
func pgxMetadata(ctx context.Context, conn *pgx.Conn) (any, error) {
	names := []string{}
	for _, name := range []string{"_float8", "text[]", "_timestamptz"} {
		loaded, err := conn.LoadType(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("type %s: %w", name, err)
		}
		names = append(names, fmt.Sprint(loaded.Name, " ", loaded.OID))
	}
	return names, nil
}
