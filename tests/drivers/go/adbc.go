package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/driver/flightsql"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// withAdbc asks with the ADBC driver for Flight SQL, by its interface in Go.
func withAdbc(q Questions) []Asked {
	ctx := context.Background()
	driver := flightsql.NewDriver(memory.DefaultAllocator)
	database, failed := driver.NewDatabase(map[string]string{
		adbc.OptionKeyURI: fmt.Sprintf("grpc://%s:%d", q.Host, q.FlightPort),
	})
	var conn adbc.Connection
	if failed == nil {
		conn, failed = database.Open(ctx)
	}
	if failed != nil {
		return unconnected(failed)
	}
	ask := func(question Question) (Rows, error) { return adbcRows(ctx, conn, question) }
	return append(common(q, ask, adbcState), []Asked{
		{"prepared", func() (any, error) { return adbcPrepared(ctx, q, conn) }},
		{"parts", func() (any, error) { return adbcParts(ctx, q, conn) }},
		{"cancel", func() (any, error) { return adbcCancel(ctx, q, conn) }},
		{"metadata", func() (any, error) { return adbcMetadata(ctx, conn) }},
	}...)
}

// cell returns a value of an array as JSON can hold it.
func cell(column arrow.Array, row int) any {
	if column.IsNull(row) {
		return nil
	}
	switch column := column.(type) {
	case *array.Boolean:
		return column.Value(row)
	case *array.Int8:
		return column.Value(row)
	case *array.Int16:
		return column.Value(row)
	case *array.Int32:
		return column.Value(row)
	case *array.Int64:
		return column.Value(row)
	case *array.Float32:
		return plain(column.Value(row))
	case *array.Float64:
		return plain(column.Value(row))
	case *array.Timestamp:
		return column.Value(row).ToTime(column.DataType().(*arrow.TimestampType).Unit).UnixMicro()
	case array.ListLike:
		from, to := column.ValueOffsets(row)
		elements := []any{}
		for at := from; at < to; at++ {
			elements = append(elements, cell(column.ListValues(), int(at)))
		}
		return elements
	}
	return column.ValueStr(row)
}

// bound returns the arguments of a question as one row.
func bound(arguments []Argument) (arrow.RecordBatch, error) {
	var fields []arrow.Field
	var columns []arrow.Array
	for at, argument := range arguments {
		var builder array.Builder
		switch value := argument.native().(type) {
		case int64:
			b := array.NewInt64Builder(memory.DefaultAllocator)
			b.Append(value)
			builder = b
		case int32:
			b := array.NewInt32Builder(memory.DefaultAllocator)
			b.Append(value)
			builder = b
		case float64:
			b := array.NewFloat64Builder(memory.DefaultAllocator)
			b.Append(value)
			builder = b
		case bool:
			b := array.NewBooleanBuilder(memory.DefaultAllocator)
			b.Append(value)
			builder = b
		case string:
			b := array.NewStringBuilder(memory.DefaultAllocator)
			b.Append(value)
			builder = b
		case time.Time:
			kind := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
			b := array.NewTimestampBuilder(memory.DefaultAllocator, kind)
			b.Append(arrow.Timestamp(value.UnixMicro()))
			builder = b
		case []string:
			b := array.NewListBuilder(memory.DefaultAllocator, arrow.BinaryTypes.String)
			b.Append(true)
			b.ValueBuilder().(*array.StringBuilder).AppendValues(value, nil)
			builder = b
		case []float64:
			b := array.NewListBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Float64)
			b.Append(true)
			b.ValueBuilder().(*array.Float64Builder).AppendValues(value, nil)
			builder = b
		case []int64:
			b := array.NewListBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Int64)
			b.Append(true)
			b.ValueBuilder().(*array.Int64Builder).AppendValues(value, nil)
			builder = b
		case []time.Time:
			kind := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
			b := array.NewListBuilder(memory.DefaultAllocator, kind)
			b.Append(true)
			for _, element := range value {
				b.ValueBuilder().(*array.TimestampBuilder).Append(arrow.Timestamp(element.UnixMicro()))
			}
			builder = b
		default:
			if value != nil {
				return nil, fmt.Errorf("an argument of type %T", value)
			}
			b := array.NewNullBuilder(memory.DefaultAllocator)
			b.AppendNull()
			builder = b
		}
		columns = append(columns, builder.NewArray())
		fields = append(fields, arrow.Field{Name: fmt.Sprint(at), Type: columns[at].DataType(), Nullable: true})
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 1), nil
}

func statementOf(ctx context.Context, conn adbc.Connection, question Question) (adbc.Statement, error) {
	statement, err := conn.NewStatement()
	if err != nil {
		return nil, err
	}
	if err := statement.SetSqlQuery(question.SQL); err != nil {
		return nil, err
	}
	if len(question.Arguments) == 0 {
		return statement, nil
	}
	if err := statement.Prepare(ctx); err != nil {
		return nil, err
	}
	row, err := bound(question.Arguments)
	if err != nil {
		return nil, err
	}
	return statement, statement.Bind(ctx, row)
}

func adbcRows(ctx context.Context, conn adbc.Connection, question Question) (Rows, error) {
	result := Rows{Rows: [][]any{}}
	statement, err := statementOf(ctx, conn, question)
	if err != nil {
		return result, err
	}
	defer statement.Close()
	reader, _, err := statement.ExecuteQuery(ctx)
	if err != nil {
		return result, err
	}
	defer reader.Release()
	return result, result.read(reader)
}

func (r *Rows) read(reader array.RecordReader) error {
	r.Types = nil
	for _, field := range reader.Schema().Fields() {
		r.Types = append(r.Types, field.Type.String())
	}
	for reader.Next() {
		batch := reader.RecordBatch()
		for row := range int(batch.NumRows()) {
			cells := make([]any, batch.NumCols())
			for at := range cells {
				cells[at] = cell(batch.Column(at), row)
			}
			r.Rows = append(r.Rows, cells)
		}
	}
	return reader.Err()
}

func adbcPrepared(ctx context.Context, q Questions, conn adbc.Connection) (any, error) {
	statement, err := conn.NewStatement()
	if err != nil {
		return nil, err
	}
	defer statement.Close()
	if err := statement.SetSqlQuery(q.Prepared.SQL); err != nil {
		return nil, err
	}
	if err := statement.Prepare(ctx); err != nil {
		return nil, err
	}
	announced, err := statement.GetParameterSchema()
	if err != nil {
		return nil, err
	}
	found := [][]any{}
	for _, value := range q.Prepared.Values {
		row, err := bound([]Argument{{Kind: "int", Value: float64(value)}})
		if err != nil {
			return nil, err
		}
		if err := statement.Bind(ctx, row); err != nil {
			return nil, err
		}
		reader, _, err := statement.ExecuteQuery(ctx)
		if err != nil {
			return nil, err
		}
		var rows Rows
		if err := rows.read(reader); err != nil {
			return nil, err
		}
		found = append(found, rows.Rows[0])
	}
	return map[string]any{"rows": found, "parameters": announced.Field(0).Type.String()}, nil
}

func adbcParts(ctx context.Context, q Questions, conn adbc.Connection) (any, error) {
	statement, err := statementOf(ctx, conn, Question{SQL: q.Parts.SQL})
	if err != nil {
		return nil, err
	}
	defer statement.Close()
	reader, _, err := statement.ExecuteQuery(ctx)
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	var streamed Sum
	for reader.Next() {
		batch := reader.RecordBatch()
		n, p := batch.Column(0).(*array.Int64), batch.Column(1).(*array.Float64)
		for row := range int(batch.NumRows()) {
			streamed.add(n.Value(row), p.Value(row))
		}
	}
	return []Sum{streamed}, reader.Err()
}

// adbcState returns the SQLSTATE of an error. It is in the message.
func adbcState(err error) string {
	var own adbc.Error
	if errors.As(err, &own) {
		for at := 0; at+14 <= len(own.Msg); at++ {
			if own.Msg[at:at+9] == "SQLSTATE " {
				return own.Msg[at+9 : at+14]
			}
		}
	}
	return fmt.Sprint(err)
}

func adbcCancel(ctx context.Context, q Questions, conn adbc.Connection) (any, error) {
	statement, err := statementOf(ctx, conn, Question{SQL: q.Endless})
	if err != nil {
		return nil, err
	}
	defer statement.Close()
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	reader, _, err := statement.ExecuteQuery(watched)
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	for reader.Next() {
		cancel()
	}
	var own adbc.Error
	state := fmt.Sprint(reader.Err())
	if errors.As(reader.Err(), &own) && own.Code == adbc.StatusCancelled || errors.Is(reader.Err(), context.Canceled) {
		state = "canceled"
	}
	after, err := adbcRows(ctx, conn, Question{SQL: "select 1"})
	return []any{state, after.Rows}, err
}

// adbcMetadata reads the tables of the schema public with their columns, and the columns of one.
func adbcMetadata(ctx context.Context, conn adbc.Connection) (any, error) {
	schema, table := "public", "engine"
	reader, err := conn.GetObjects(ctx, adbc.ObjectDepthColumns, nil, &schema, &table, nil, nil)
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	var objects []string
	for reader.Next() {
		batch := reader.RecordBatch()
		for row := range int(batch.NumRows()) {
			objects = append(objects, batch.Column(1).ValueStr(row))
		}
	}
	described, err := conn.GetTableSchema(ctx, nil, &schema, table)
	if err != nil {
		return nil, err
	}
	columns := [][]string{}
	for _, field := range described.Fields() {
		columns = append(columns, []string{field.Name, field.Type.String()})
	}
	return map[string]any{"objects": objects, "columns": columns}, nil
}
