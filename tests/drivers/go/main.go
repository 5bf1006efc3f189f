// Asks a server the questions of standard input with a driver of Go, and prints the answers as JSON.
//
//	drivers pgx|pq|adbc < questions.json > answers.json
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"
)

// Question is a statement with its arguments.
type Question struct {
	SQL       string     `json:"sql"`
	Arguments []Argument `json:"arguments"`
}

// Argument is a value with the type that a program would give it.
type Argument struct {
	Kind  string `json:"kind"`
	Value any    `json:"value"`
}

// Questions are what each driver is asked, by feature.
type Questions struct {
	Host       string     `json:"host"`
	Port       int        `json:"port"`
	FlightPort int        `json:"flight_port"`
	WriteURL   string     `json:"write_url"`
	Connect    Question   `json:"connect"`
	Columns    []Question `json:"columns"`
	Values     Question   `json:"values"`
	Special    Question   `json:"special"`
	Arrays     Question   `json:"arrays"`
	Elements   Question   `json:"elements"`
	Parameters []Question `json:"parameters"`
	Any        []Question `json:"any"`
	Limit      Question   `json:"limit"`
	Prepared   struct {
		SQL    string  `json:"sql"`
		Values []int64 `json:"values"`
	} `json:"prepared"`
	Parts struct {
		SQL  string `json:"sql"`
		Rows int    `json:"rows"`
	} `json:"parts"`
	Copy    string   `json:"copy"`
	Errors  []string `json:"errors"`
	Refused Question `json:"refused"`
	Endless string   `json:"endless"`
}

// Rows are the rows of an answer, with the types that the driver gives their columns.
type Rows struct {
	Types []string `json:"types,omitempty"`
	Rows  [][]any  `json:"rows"`
}

// Answer is the answer about one feature: a value, or an error.
type Answer struct {
	Value any    `json:"value"`
	Error string `json:"error,omitempty"`
}

// Sum adds up the rows of a long result as they arrive.
type Sum struct {
	Rows  int     `json:"rows"`
	Total int64   `json:"total"`
	First int64   `json:"first"`
	Last  int64   `json:"last"`
	Mean  float64 `json:"sum"`
}

func (s *Sum) add(n int64, p float64) {
	if s.Rows == 0 {
		s.First = n
	}
	s.Rows++
	s.Total += n
	s.Last = n
	s.Mean += p
}

// plain returns a value as JSON can hold it: times as microseconds since 1970, other floats than numbers as texts.
func plain(value any) any {
	switch v := value.(type) {
	case float32:
		return plain(float64(v))
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) || (v == 0 && math.Signbit(v)) {
			return fmt.Sprint(v)
		}
	case time.Time:
		return v.UnixMicro()
	case []byte:
		return string(v)
	case []any:
		elements := make([]any, len(v))
		for at, element := range v {
			elements[at] = plain(element)
		}
		return elements
	}
	return value
}

// native returns an argument as a program in Go would have it.
func (a Argument) native() any {
	switch a.Kind {
	case "int":
		return int64(a.Value.(float64))
	case "int4":
		return int32(a.Value.(float64))
	case "time":
		return time.UnixMicro(int64(a.Value.(float64))).UTC()
	case "texts":
		return list[string](a.Value)
	case "floats":
		return list[float64](a.Value)
	case "ints":
		var ints []int64
		for _, element := range list[float64](a.Value) {
			ints = append(ints, int64(element))
		}
		return ints
	case "times":
		var times []time.Time
		for _, element := range list[float64](a.Value) {
			times = append(times, time.UnixMicro(int64(element)).UTC())
		}
		return times
	}
	return a.Value
}

func (q Question) natives() []any {
	values := make([]any, len(q.Arguments))
	for at, argument := range q.Arguments {
		values[at] = argument.native()
	}
	return values
}

func list[T any](value any) []T {
	var elements []T
	for _, element := range value.([]any) {
		elements = append(elements, element.(T))
	}
	return elements
}

// Asked is a feature with what finds its answer.
type Asked struct {
	name string
	ask  func() (any, error)
}

// each returns the answers to questions, as long as none fails.
func each(questions []Question, ask func(Question) (Rows, error)) ([]Rows, error) {
	var answers []Rows
	for _, question := range questions {
		rows, err := ask(question)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", question.SQL, err)
		}
		answers = append(answers, rows)
	}
	return answers, nil
}

// common returns what every client is asked in the same way.
func common(q Questions, ask func(Question) (Rows, error), stateOf func(error) string) []Asked {
	asked := func(question Question) func() (any, error) {
		return func() (any, error) { return ask(question) }
	}
	return []Asked{
		{"connect", asked(q.Connect)},
		{"columns", func() (any, error) { return each(q.Columns, ask) }},
		{"values", asked(q.Values)},
		{"special", asked(q.Special)},
		{"arrays", asked(q.Arrays)},
		{"elements", asked(q.Elements)},
		{"parameters", func() (any, error) { return each(q.Parameters, ask) }},
		{"any", func() (any, error) { return each(q.Any, ask) }},
		{"limit", asked(q.Limit)},
		{"errors", func() (any, error) {
			var states []string
			for _, sql := range q.Errors {
				_, err := ask(Question{SQL: sql})
				states = append(states, stateOf(err))
			}
			_, err := ask(q.Refused)
			return append(states, stateOf(err)), nil
		}},
	}
}

// unconnected returns what a client that cannot connect answers.
func unconnected(failed error) []Asked {
	return []Asked{{"connect", func() (any, error) { return nil, failed }}}
}

func main() {
	var questions Questions
	if err := json.NewDecoder(os.Stdin).Decode(&questions); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	drivers := map[string]func(Questions) []Asked{"pgx": withPgx, "pq": withPq, "adbc": withAdbc}
	answers := map[string]Answer{}
	for _, asked := range drivers[os.Args[1]](questions) {
		value, err := asked.ask()
		answers[asked.name] = Answer{Value: value}
		if err != nil {
			answers[asked.name] = Answer{Error: err.Error()}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
