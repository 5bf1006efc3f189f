package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lib/pq"
)

// withPq asks with lib/pq through database/sql, as text and as binary parameters.
func withPq(q Questions) []Asked {
	ctx := context.Background()
	address := fmt.Sprintf("host=%s port=%d user=anyone dbname=strongback sslmode=disable", q.Host, q.Port)
	db, failed := sql.Open("postgres", address)
	if failed == nil {
		failed = db.Ping()
	}
	if failed != nil {
		return unconnected(failed)
	}
	ask := func(question Question) (Rows, error) { return sqlRows(ctx, db, question) }
	return append(common(q, ask, pqState), []Asked{
		{"modes", func() (any, error) { return pqModes(ctx, q, address) }},
		{"prepared", func() (any, error) { return pqPrepared(ctx, q, db) }},
		{"parts", func() (any, error) { return pqParts(ctx, q, db) }},
		{"cancel", func() (any, error) { return pqCancel(ctx, q, address) }},
		{"transactions", func() (any, error) { return pqTransactions(ctx, q, db) }},
		{"reset", func() (any, error) { return pqReset(ctx, address) }},
	}...)
}

type sqlQuerier interface {
	QueryContext(ctx context.Context, query string, arguments ...any) (*sql.Rows, error)
}

// arrayOf returns where an array of a type is read into.
func arrayOf(kind string) any {
	switch kind {
	case "_BOOL":
		return &[]sql.NullBool{}
	case "_INT2", "_INT4", "_INT8":
		return &[]sql.NullInt64{}
	case "_FLOAT4", "_FLOAT8":
		return &[]sql.NullFloat64{}
	case "_TEXT", "_NUMERIC":
		return &[]sql.NullString{}
	}
	return nil
}

// elementsOf returns what was read into a slice.
func elementsOf(slice any) any {
	elements := []any{}
	switch slice := slice.(type) {
	case *[]sql.NullBool:
		for _, e := range *slice {
			value, _ := e.Value()
			elements = append(elements, value)
		}
	case *[]sql.NullInt64:
		for _, e := range *slice {
			value, _ := e.Value()
			elements = append(elements, value)
		}
	case *[]sql.NullFloat64:
		for _, e := range *slice {
			value, _ := e.Value()
			elements = append(elements, plain(value))
		}
	case *[]sql.NullString:
		for _, e := range *slice {
			value, _ := e.Value()
			elements = append(elements, value)
		}
	}
	return elements
}

func sqlRows(ctx context.Context, db sqlQuerier, question Question) (Rows, error) {
	result := Rows{Rows: [][]any{}}
	values := question.natives()
	for at, value := range values {
		switch value.(type) {
		case []string, []int64, []float64:
			values[at] = pq.Array(value)
		}
	}
	rows, err := db.QueryContext(ctx, question.SQL, values...)
	if err != nil {
		return result, err
	}
	defer rows.Close()
	columns, err := rows.ColumnTypes()
	if err != nil {
		return result, err
	}
	for _, column := range columns {
		result.Types = append(result.Types, column.DatabaseTypeName())
	}
	for rows.Next() {
		row := make([]any, len(columns))
		places := make([]any, len(columns))
		for at := range columns {
			places[at] = &row[at]
		}
		if err := rows.Scan(places...); err != nil {
			return result, err
		}
		for at, value := range row {
			slice := arrayOf(result.Types[at])
			if slice == nil || value == nil {
				row[at] = plain(value)
				continue
			}
			if err := pq.Array(slice).Scan(value); err != nil {
				return result, fmt.Errorf("column %d: %w", at, err)
			}
			row[at] = elementsOf(slice)
		}
		result.Rows = append(result.Rows, row)
	}
	return result, rows.Err()
}

// pqModes asks the same with binary parameters.
func pqModes(ctx context.Context, q Questions, address string) (any, error) {
	db, err := sql.Open("postgres", address+" binary_parameters=yes")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	ask := func(question Question) (Rows, error) { return sqlRows(ctx, db, question) }
	rows, err := each(append(append([]Question{q.Limit}, q.Parameters...), q.Any...), ask)
	return map[string][]Rows{"binary_parameters": rows}, err
}

func pqPrepared(ctx context.Context, q Questions, db *sql.DB) (any, error) {
	statement, err := db.PrepareContext(ctx, q.Prepared.SQL)
	if err != nil {
		return nil, err
	}
	defer statement.Close()
	found := [][]any{}
	for _, value := range q.Prepared.Values {
		var n int64
		var p float64
		if err := statement.QueryRowContext(ctx, value).Scan(&n, &p); err != nil {
			return nil, err
		}
		found = append(found, []any{n, p})
	}
	return map[string]any{"rows": found}, nil
}

func addRows(sum *Sum, rows *sql.Rows) error {
	defer rows.Close()
	var n int64
	var p float64
	for rows.Next() {
		if err := rows.Scan(&n, &p); err != nil {
			return err
		}
		sum.add(n, p)
	}
	return rows.Err()
}

func pqParts(ctx context.Context, q Questions, db *sql.DB) (any, error) {
	var streamed, fetched Sum
	rows, err := db.QueryContext(ctx, q.Parts.SQL)
	if err != nil {
		return nil, err
	}
	if err := addRows(&streamed, rows); err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "declare parts cursor for "+q.Parts.SQL); err != nil {
		return nil, err
	}
	for before := -1; before != fetched.Rows; {
		before = fetched.Rows
		rows, err := tx.QueryContext(ctx, fmt.Sprintf("fetch forward %d from parts", q.Parts.Rows))
		if err != nil {
			return nil, err
		}
		if err := addRows(&fetched, rows); err != nil {
			return nil, err
		}
	}
	return []Sum{streamed, fetched}, tx.Commit()
}

func pqState(err error) string {
	var own *pq.Error
	if errors.As(err, &own) {
		return string(own.Code)
	}
	return fmt.Sprint(err)
}

// pqCancel cancels by the context of a statement.
func pqCancel(ctx context.Context, q Questions, address string) (any, error) {
	db, err := sql.Open("postgres", address)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := conn.QueryContext(watched, q.Endless)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		cancel()
	}
	state := pqState(rows.Err())
	if errors.Is(rows.Err(), context.Canceled) {
		state = "canceled"
	}
	conn.Close()
	after, err := sqlRows(ctx, db, Question{SQL: "select 1"})
	return []any{state, after.Rows}, err
}

func pqTransactions(ctx context.Context, q Questions, db *sql.DB) (any, error) {
	states := []string{}
	for _, option := range []*sql.TxOptions{nil, {Isolation: sql.LevelSerializable, ReadOnly: true}} {
		tx, err := db.BeginTx(ctx, option)
		if err != nil {
			return nil, err
		}
		if _, err := tx.ExecContext(ctx, "select 1"); err != nil {
			return nil, err
		}
		if err := tx.Commit(); err != nil {
			return nil, err
		}
		states = append(states, "committed")
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, q.Errors[0])
	states = append(states, pqState(err))
	_, err = tx.ExecContext(ctx, "select 1")
	states = append(states, pqState(err))
	if err := tx.Rollback(); err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, "select 1")
	return append(states, "rolled back"), err
}

func pqReset(ctx context.Context, address string) (any, error) {
	db, err := sql.Open("postgres", address)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	var seen []any
	for _, sql := range []string{"set application_name = 'mine'", "discard all"} {
		var name string
		if _, err := db.ExecContext(ctx, sql); err != nil {
			return nil, err
		}
		if err := db.QueryRowContext(ctx, "show application_name").Scan(&name); err != nil {
			return nil, err
		}
		seen = append(seen, name)
	}
	return seen, nil
}
